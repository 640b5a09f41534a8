"""What the memory program needs of a training run: canonical facts turned into sizes and switches.

A fact that nothing states takes the default named here; every such default is listed among the estimate's assumptions by
`assumed`. Facts with several possible values are enumerated before this point (`memlint.memory.scenarios`).
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.facts import TrainingRun
from memlint.gpus.gpu import Gpu
from memlint.memory.media import Media, media_of
from memlint.memory.result import CannotEstimate
from memlint.memory.sharding import FSDP, Sharding, sharding_of
from memlint.memory.targets import EVERY_LINEAR
from memlint.memory.timeline import Repeated
from memlint.memory.versions import Stack, stack_of
from memlint.models.architecture import Architecture
from memlint.typed import Any, NamedTuple

ITEMSIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "float64": 8}


class Setup(NamedTuple):
    """One fully decided configuration. Element sizes are in bytes; `None` never appears."""

    weight_itemsize: int
    norm_itemsize: int
    autocast: int
    float16: bool
    """The half precision of the run is float16."""
    batch: int
    sequence: int
    evaluation_batch: int
    """Samples per evaluation batch; 0: none in training."""
    uses_cache: bool
    """The model returns keys and values where its configuration decides."""
    rollouts: int
    """Sequences that the model generates at a time between steps; 0: none, or another engine does."""
    completion: int
    """Tokens of a sequence that are generated; 0: not known."""
    packed: bool
    """Every batch has the full length; else the longest one rarely follows another of its length."""
    accumulates: bool
    """Several micro-batches per step: gradients are there from the first one on."""
    attention: str
    padding_mask: bool
    objective: str
    num_labels: int
    checkpointing: str
    """none, full, selective_op, selective_layer, selective_core_attention."""
    recomputes_attention: bool
    """Selective checkpointing by operation does not keep what the card's attention kernel makes."""
    checkpoint_every: int
    reentrant: bool
    input_grads: bool
    """The embedding's output is made to require a gradient (`enable_input_require_grads`), whether or not blocks are checkpointed."""
    checkpoint_offload: bool
    head_only: bool
    """Nothing but an output head is trained."""
    adapter: str
    """"" for full fine-tuning, else the PEFT method."""
    adapter_rank: int
    """0: the method's default."""
    adapter_dropout: float
    adapter_targets: tuple[str, ...] | str | None
    adapter_itemsize: int
    adapter_options: Mapping[str, Any]
    """Further fields of the PEFT configuration."""
    adapter_prompt: int
    modules_to_save: tuple[str, ...]
    quantization: str
    """"" or the method."""
    double_quant: bool
    group_size: int
    bits: int
    compute_itemsize: int
    unpacked_itemsize: int
    """Element size that a packed weight has before it is converted to the compute dtype; 0: it is unpacked in that."""
    quantizes_experts: bool
    load_upcast: bool
    """axolotl raises embedding and head to float32 while it loads a model for an adapter, unless it is told not to."""
    quantization_skips: tuple[str, ...]
    kernels: frozenset[str]
    compiled: str
    """What torch.compile covers: blocks, model, or nothing."""
    optimizer: str
    foreach: bool
    wide_embeddings: bool
    """Embeddings have 32-bit states under an 8-bit optimizer."""
    in_backward: bool
    master_weights: bool
    grad_itemsize: int
    """0: the parameter's own."""
    logits: str
    """full, chunked, fused, none."""
    loss_kernel: str
    loss_upcast: bool
    loss_chunk_tokens: int
    loss_chunks: int
    loss_budget: int
    """Bytes that a chunk of logits may have where a loss sizes them by the card."""
    loss_keeps_chunks: bool
    ce_chunk_tokens: int
    logits_mean: bool
    keeps_outputs: bool
    outputs_fp32: bool
    stack: Stack
    reference_copy: bool
    layers: int
    tied: bool
    vocabulary: int
    workspace: int
    """Bytes of one cuBLAS workspace; the forward and the backward thread own one each."""
    no_flash: bool
    """The card is older than Ampere: torch's flash kernel does not run on it, and its memory-efficient one takes float16, not bfloat16."""
    sharding: Sharding
    expandable_segments: bool
    beside: int
    """Bytes that something else in the process holds all along (a colocated inference engine)."""
    companions: int
    """Bytes of other models on the card: weights of reward models, everything of a trained value model."""
    stage: str
    """only, first or last pipeline stage."""
    under_way: int
    """Micro-batches that the stage holds the activations of, the one at work included."""
    fills: bool
    """The stage runs every micro-batch forward before the first one backward."""
    media: Media
    repeats: tuple[Repeated, ...]
    """Which of the simulated layers stand for others; `layers` then counts those simulated."""
    stored_itemsize: int
    """dtype in which trained base weights are stored between uses (float32 shards under FSDP with mixed precision)."""
    predictions: int
    """Layers that predict further tokens, each with a loss of its own (Megatron's multi-token prediction)."""
    moments: tuple[int, int]
    """Element sizes of Adam's two states where the optimizer lets them be chosen; 0: float32, or the weights' own."""

    @property
    def lora_rank(self) -> int:
        """The rank of a plain low-rank pair (peft 0.21.2 `tuners/lora/config.py`: 8 by default)."""
        return self.adapter_rank or 8

    @property
    def depth(self) -> int:
        """Layers of the whole model."""
        return self.layers + sum(repeat.extra for repeat in self.repeats)

    def trains(self, name: str, kind: str) -> bool:
        """Whether a base parameter is trained."""
        if self.adapter == "":
            return not self.head_only or name.removesuffix(".bias") in OUTPUT_HEADS
        if self.adapter == "ln_tuning":
            return kind == "norm"
        if self.adapter == "bitfit":
            return kind == "bias"
        return False

    def saves(self, name: str) -> bool:
        """Whether PEFT trains a full copy of the module of this name."""
        names = next((alike for alike in (EMBEDDINGS, HEADS) if name in alike), {name})
        return bool(self.adapter) and any(_ends_in(names, m) for m in self.modules_to_save)

    def quantises(self, name: str, head: bool) -> bool:
        """Whether a linear's weight is stored packed."""
        if not self.quantization:
            return False
        if self.stack.framework == "litgpt":
            return True  # Lightning Fabric's plugin replaces every linear layer (2.1 `precision/bitsandbytes.py`, `module_init_context`)
        if self.quantization == "torchao_nf4":
            return not head
        return not head and name not in self.quantization_skips


def setup_of(run: TrainingRun, architecture: Architecture, gpu: Gpu | None, assumed: list[str]) -> Setup:
    """Decide everything; appends one sentence to `assumed` for each default that had to be taken."""
    facts = _Facts(run, assumed)
    stack = stack_of(run)
    precision = facts.get("precision", "fp32")
    mixed = precision.endswith("-mixed")
    dtype = facts.get("model.dtype", None)
    if dtype is None:
        dtype = "float32" if mixed or precision == "fp32" else ("bfloat16" if precision == "bf16-true" else "float16")
        assumed.append(f"weights held in {dtype}: nothing states model.dtype")
    weight = ITEMSIZES.get(dtype)
    if weight is None:
        raise CannotEstimate(f"model.dtype {dtype!r} is not a dtype that weights are held in")
    method = facts.get("adapter.method", "none")
    adapter = "" if method == "none" else method
    quantization = facts.get("quantization.method", "none")
    quantization = "" if quantization == "none" else quantization
    checkpointing = bool(facts.get("checkpointing.enabled", False))
    mode = facts.get("checkpointing.mode", "full") if checkpointing else "none"
    sequence = facts.get("batch.sequence_length", None) or facts.get("batch.sequence_length_max", None)
    media = media_of(facts.get)
    if sequence is None:
        sequence = media.latent_tokens + media.text_tokens or None
    if sequence is None:
        sequence = architecture.max_positions or _patches(architecture, media)
        if sequence is None or sequence > 8192:
            raise CannotEstimate("batch.sequence_length is not known: set it with `--set batch.sequence_length=N`")
        assumed.append(f"sequences of {sequence} tokens, the model's limit: nothing states batch.sequence_length")
    batch = facts.get("batch.micro_batch_size", None)
    if batch is None:
        raise CannotEstimate("batch.micro_batch_size is not known: set it with `--set batch.micro_batch_size=N`")
    optimizer = str(facts.get("optimizer.name", "adamw_torch"))
    targets = facts.get("adapter.target_modules", None)
    if isinstance(targets, (list, tuple)):
        targets = tuple(str(t) for t in targets)
    adapter_dtype = facts.get("adapter.dtype", "float32" if weight == 4 or adapter else "bfloat16")
    logits = facts.get("loss.logits", "full")
    objective = facts.get("objective", "causal_lm")
    attention = facts.get("model.attention", None) or ("sdpa" if stack.sdpa_by_default else "eager")
    eager_only = architecture.model_type in stack.eager_only
    if eager_only and attention == "sdpa":
        attention = "eager"
    packing = bool(facts.get("batch.packing", False))
    rows = 2 if objective in PAIRED and not (packing and stack.framework in PACKS_PAIRS) else 1
    flash = str(attention).startswith("flash")
    tied = facts.get("model.tie_word_embeddings", _tied(architecture, stack))
    multiple = int(facts.get("model.padded_vocab_multiple", 1) or 1)
    vocabulary = architecture.vocab_size or 0
    vocabulary = -(-vocabulary // multiple) * multiple
    sharding = sharding_of(run, weight)
    if sharding.bucket_of_width and architecture.hidden_size:
        sharding = sharding._replace(reduce_bucket=architecture.hidden_size**2)
    if sharding.is_zero:
        weight, mixed = (2 if precision != "fp32" else 4), False
    gathers = sharding.strategy in FSDP and sharding.ranks > 1  # alone there is nothing to gather, and autocast computes
    if gathers and sharding.compute_itemsize and weight == 4:
        weight = sharding.compute_itemsize
    compute = facts.get("quantization.compute_dtype", None)
    compiled = (facts.get("compile.scope", None) or _compiled(stack, sharding)) if facts.get("compile", False) else ""
    return Setup(
        weight_itemsize=weight,
        norm_itemsize=ITEMSIZES.get(facts.get("model.norm_dtype", ""), weight),
        autocast=2 if mixed and not (gathers and sharding.strategy == "fsdp2" and stack.framework == "torchtitan") else 0,
        float16=precision.startswith("fp16") or dtype == "float16",
        batch=-(-int(batch) // max(1, int(facts.get("parallel.pipeline_micro_batches", 1) or 1))) * rows,
        sequence=-(-(int(sequence) + _virtual_tokens(adapter, facts)) // sharding.context),
        evaluation_batch=_evaluation_batch(facts, rows),
        # TRL's own scripts and models that it loads itself have no cache under checkpointing (0.13 `scripts/sft.py`, 1.16 `utils.py`).
        uses_cache=bool(facts.get("model.use_cache", not (stack.framework == "trl" and checkpointing))),
        rollouts=int(facts.get("generation.batch_size", 0) or 0) if facts.get("generation.vllm", "none") == "none" else 0,
        completion=int(facts.get("batch.completion_length", 0) or 0),
        packed=packing,
        accumulates=max(int(facts.get(key, 1) or 1) for key in MICRO_BATCHES) > 1,
        attention=str(attention),
        padding_mask=not packing and int(batch) > 1 and not flash and stack.pads and objective != "diffusion",
        objective=str(objective),
        num_labels=int(facts.get("model.num_labels", architecture.config.get("num_labels")) or 2),
        checkpointing=str(mode),
        recomputes_attention=stack.recomputes_cudnn and gpu is not None and gpu.compute_capability >= (10, 0),
        checkpoint_every=int(facts.get("checkpointing.layer_frequency", 1) or 1),
        reentrant=bool(facts.get("checkpointing.use_reentrant", stack.reentrant_by_default)),
        input_grads=bool(facts.get("checkpointing.input_grads", False)),
        checkpoint_offload=bool(facts.get("checkpointing.offload", False)),
        head_only=not adapter and facts.get("trainable.modules", None) is not None,
        adapter=adapter,
        adapter_rank=int(facts.get("adapter.r", 0) or 0),
        adapter_dropout=float(facts.get("adapter.dropout", 0.0) or 0.0),
        adapter_targets=targets,
        adapter_itemsize=4 if stack.adapters_in_fp32 and not sharding.is_zero else ITEMSIZES.get(adapter_dtype, 4),
        adapter_options=facts.mapping("adapter.config"),
        adapter_prompt=int(facts.get("adapter.prompt_length", 0) or 0),
        modules_to_save=(*(facts.get("adapter.modules_to_save", ()) or ()), *_task_heads(str(objective), targets)),
        quantization=quantization,
        double_quant=bool(facts.get("quantization.double_quant", False)),
        group_size=int(facts.get("quantization.group_size", 128) or 128),
        bits=int(facts.get("quantization.bits", 4) or 4),
        compute_itemsize=ITEMSIZES.get(compute, 2 if mixed or weight == 2 else 4),
        unpacked_itemsize=_unpacked(quantization, stack, dtype, compute),
        quantizes_experts=bool(facts.get("quantization.experts", False)),
        load_upcast=bool(facts.get("model.load_upcast", True)),
        quantization_skips=tuple(facts.get("quantization.skip_modules", ()) or ()),
        kernels=frozenset(facts.get("kernels", ()) or ())
        | ({"cross_entropy"} if compiled and _compiles_loss(compiled, stack, str(logits), str(objective)) else set()),
        compiled=compiled,
        optimizer=optimizer,
        foreach=bool(facts.get("optimizer.foreach", _foreach(optimizer, stack, sharding))),
        wide_embeddings=bool(facts.get("optimizer.wide_embeddings", True)),
        in_backward=bool(facts.get("optimizer.in_backward", False)),
        master_weights=bool(facts.get("optimizer.master_weights", sharding.is_zero)),
        grad_itemsize=ITEMSIZES.get(facts.get("optimizer.grad_dtype", ""), 0),
        logits=str(logits),
        loss_kernel=str(facts.get("loss.kernel", "triton_ce" if stack.framework in FUSED_CROSS_ENTROPY else "torch_ce")),
        loss_upcast=bool(
            facts.get("loss.upcast_fp32", _upcasts(architecture, stack) and facts.get("loss.kernel", "") not in UNCAST)
            and not (objective in PAIRED and stack.framework in SCORED and not mixed)
        ),
        loss_chunk_tokens=int(facts.get("loss.chunk_tokens", 0) or 0),
        loss_chunks=int(facts.get("loss.num_chunks", 8 if logits == "chunked" else 0) or 0),
        loss_budget=0,
        loss_keeps_chunks=bool(facts.get("loss.keeps_chunks", False)),
        ce_chunk_tokens=int(facts.get("loss.ce_chunk_tokens", 0) or 0),
        logits_mean=facts.get("loss.reduction", "") == "logits_mean",
        keeps_outputs=stack.keeps_outputs,
        outputs_fp32=bool(facts.get("trainer.outputs_fp32", mixed and stack.uses_accelerate)),
        stack=stack,
        reference_copy=facts.get("reference_model", "none") == "copy",
        layers=int(facts.get("model.layers_override", _depth(architecture, objective)) or 0),
        tied=bool(tied),
        vocabulary=vocabulary,
        workspace=workspace_bytes(gpu),
        sharding=sharding,
        media=media,
        expandable_segments=bool(facts.get("hardware.expandable_segments", stack.expandable_segments)),
        beside=0,
        repeats=(),
        companions=0,
        stage="only",
        under_way=1,
        fills=False,
        predictions=int(facts.get("model.mtp_layers", 0) or 0),
        moments=(
            ITEMSIZES.get(facts.get("optimizer.exp_avg_dtype", ""), 0),
            ITEMSIZES.get(facts.get("optimizer.exp_avg_sq_dtype", ""), 0),
        ),
        stored_itemsize=4 if gathers and sharding.compute_itemsize else weight,
        no_flash=gpu is not None and gpu.compute_capability < (8, 0),
    )


WHOLE = {"unet_2d_condition"}
"""Networks whose parts are no layers of one kind: they are simulated as a whole."""

CLASS_DEPTHS = {"flux_transformer": 19, "sd3_transformer": 18}
"""Blocks of diffusers' transformers where a configuration leaves them out (diffusers 0.42 `transformer_flux.py`, `transformer_sd3.py`)."""


def _unpacked(quantization: str, stack: Stack, dtype: str, compute: str | None) -> int:
    """bitsandbytes unpacks 4-bit weights in the dtype they were packed from and converts them (`autograd/_functions.py`, `MatMul4Bit`)."""
    packed_from = "float16" if stack.packs_half else dtype
    converts = quantization == "bnb_4bit" and packed_from != (compute or dtype)
    return ITEMSIZES[packed_from] if converts else 0


def _depth(architecture: Architecture, objective: str) -> int:
    """Layers of the stack that is trained: classifying images takes a dual encoder's vision tower alone."""
    vision = architecture.config.get("vision_config")
    if objective == "image_classification" and isinstance(vision, Mapping):
        return int(vision.get("num_hidden_layers") or 0)
    if architecture.model_type in WHOLE:
        return 1
    depths = architecture.config.get("depths")
    listed = sum(depths) if isinstance(depths, (list, tuple)) else CLASS_DEPTHS.get(architecture.model_type, 0)
    return architecture.layers or listed


MICRO_BATCHES = ("batch.gradient_accumulation_steps", "parallel.pipeline_micro_batches")


def _patches(architecture: Architecture, media: Media) -> int | None:
    """Tokens of one image in an image model."""
    if architecture.model_type in (*WHOLE, *CLASS_DEPTHS) or not (architecture.heads or architecture.vocab_size):
        return 1  # a convolutional network has positions, but no tokens
    size, patch = media.image_size or architecture.config.get("image_size"), architecture.config.get("patch_size")
    return (int(size) // int(patch)) ** 2 + 1 if isinstance(size, int) and isinstance(patch, int) and patch else None


def workspace_bytes(gpu: Gpu | None) -> int:
    """torch 2.13 `aten/src/ATen/cuda/CublasHandlePool.cpp`: 4096 KiB x 2 + 16 KiB x 8; 32 MiB from Hopper on."""
    return 32 << 20 if gpu is not None and gpu.compute_capability >= (9, 0) else 8_519_680


EMBEDDINGS = {"embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings"}
"""What the families call the input embedding."""

HEADS = {"lm_head", "embed_out"}
"""What they call the output head over the vocabulary."""

PAIRED = {"dpo", "orpo", "cpo", "reward", "ipo", "simpo", "kto", "sentence_embedding"}
"""Objectives whose forward pass sees two sequences per sample (TRL 1.16: chosen and rejected are concatenated; KTO computes a
second, mismatched set for its KL term; the losses of sentence-transformers 5.1 embed the texts of a pair one after the other and compare
them, `losses/MultipleNegativesRankingLoss.py`; a third text, a hard negative, is not known)."""


PACKS_PAIRS = {"ms_swift", "ms-swift"}
"""Frameworks whose packed rows hold both sequences of a sample: their lengths are added up before packing (ms-swift 3602360a56
`dataset/packing.py`, `create_packed_idx`)."""


SCORED = {"trl", "axolotl", "ms_swift", "ms-swift"}
"""Frameworks that take log-probabilities of preferred and rejected samples from the logits as they come (TRL 0.13 `dpo_trainer.py`,
`log_softmax`; from 0.15 on `selective_log_softmax`, row by row for half ones; ms-swift 2900bbf4d3 `rlhf_trainer/dpo_trainer.py`)."""


FUSED_CROSS_ENTROPY = {"llm-foundry"}
"""Frameworks whose default loss is flash-attn's fused cross entropy (llm-foundry 0.22 `models/mpt/modeling_mpt.py`,
`loss_fn: fused_crossentropy`): logits in the dtype they come in, their gradient in place."""

UNCAST = {"te_fused_ce", "unsloth_ce"}
"""Kernels that get the logits as the head makes them (Unsloth 2024.8 and later, `models/llama.py` `CausalLM_fast_forward`; Megatron-LM
0.15 with Transformer Engine's cross entropy)."""

NO_UPCAST = {"qwen", "chatglm", "mpt", "baichuan"}
"""Models whose own loss does not copy the logits to float32: remote code (hub `modeling_qwen.py`, `modeling_chatglm.py`) and MPT before
transformers 4.46."""


def _upcasts(architecture: Architecture, stack: Stack) -> bool:
    if architecture.model_type == "mpt" and stack.transformers >= (4, 46):
        return True
    return architecture.model_type not in NO_UPCAST and stack.framework not in FUSED_CROSS_ENTROPY


CLASSIFIERS = {"sequence_classification", "token_classification", "reward", "question_answering"}
OUTPUT_HEADS = ("lm_head", "embed_out", "output", "classifier", "score", "qa_outputs", "cls", "decoder")
"""Names of linears on top of the stack: not quantised, nor targets of `all-linear` (peft 0.21.2 `tuners_utils.py`; transformers 5.24)."""

TASK_HEADS = ("classifier", "score", "qa_outputs")
"""Heads that PEFT trains in full under a classification task type (peft 0.21.2, `peft_model.py`)."""


T5 = {"t5": True, "mt5": False, "umt5": True}
"""The T5 line, and whether transformers 4 ties its head to the embedding where a configuration does not say."""


def _tied(architecture: Architecture, stack: Stack) -> bool:
    """Whether the head is the embedding's weight. transformers 5 ties T5's whatever the configuration says (5.0 `configuration_t5.py`,
    `configuration_mt5.py`, `configuration_umt5.py`); 4 goes by it (4.57): the heads of FLAN-T5, T5 1.1 and mT5 are apart there."""
    if architecture.model_type not in T5:
        return architecture.tied
    return stack.transformers >= (5, 0) or bool(architecture.config.get("tie_word_embeddings", T5[architecture.model_type]))


def _task_heads(objective: str, targets: tuple[str, ...] | str | None) -> tuple[str, ...]:
    """The heads that a task type trains whole. One for tokens has none where every linear is adapted: that takes the head, too, and PEFT
    refuses to train a copy of an adapted layer."""
    whole = objective in ("sequence_classification", "reward") or targets not in EVERY_LINEAR
    return TASK_HEADS if objective in CLASSIFIERS and whole else ()


def _evaluation_batch(facts: _Facts, rows_per_sample: int) -> int:
    if not facts.get("eval.enabled", False):
        return 0
    return int(facts.get("eval.batch_size", 0) or 0) * rows_per_sample


def _virtual_tokens(adapter: str, facts: _Facts) -> int:
    """Tokens that a prompt method puts in front of every sample (peft 0.21.2 `peft_model.py`, `num_virtual_tokens`)."""
    if adapter not in ("prompt_tuning", "p_tuning", "multitask_prompt_tuning", "cpt"):
        return 0
    return int(facts.mapping("adapter.config").get("num_virtual_tokens") or facts.get("adapter.prompt_length", 0) or 0)


def _compiled(stack: Stack, sharding: Sharding) -> str:
    """What torch.compile covers. The whole model (`torch.compile(model)`: the Trainer by way of accelerate 1.15 `accelerator.py`
    `prepare_model`, scripts); torchtune 0.6 (`training/_compile.py`) and torchtitan (`parallelize.py`) compile block by block, and FSDP's
    hooks around the blocks break the graph there."""
    return "blocks" if stack.framework in ("torchtune", "torchtitan") or sharding.strategy in FSDP else "model"


def _compiles_loss(compiled: str, stack: Stack, logits: str, objective: str) -> bool:
    """Whether the cross entropy is compiled: where the framework compiles it (torchtune's chunked loss, torchtitan by its date), and where
    it is part of the model's forward pass, as transformers' own losses are."""
    inside = (stack.names_embedding or stack.framework == "nanogpt") and objective in ("causal_lm", "masked_lm", "seq2seq_lm")
    return (compiled == "model" and inside) or logits == "chunked" or stack.compiles_loss


def _foreach(optimizer: str, stack: Stack, sharding: Sharding) -> bool:
    """torch.optim's choice. Under ZeRO the optimizer is DeepSpeed's own fused one where its JSON has an optimizer block (0.15
    `runtime/engine.py`, `_configure_basic_optimizer`), as the files that transformers documents have."""
    return optimizer in ("adamw_torch", "sgd") and stack.foreach_by_default and not sharding.is_zero


def _ends_in(names: set[str], module: str) -> bool:
    """Whether `modules_to_save` means one of these: PEFT compares the ends of paths (`other.py`, `_set_trainable`, `key.endswith`)."""
    path, _, leaf = module.rpartition(".")
    return leaf in names if path else any(name.endswith(leaf) for name in names)


class _Facts:
    """Read access to a run's known values."""

    def __init__(self, run: TrainingRun, assumed: list[str]) -> None:
        self.facts: Mapping[str, Any] = run.facts
        self.assumed = assumed

    def get(self, key: str, otherwise: Any) -> Any:
        fact = self.facts.get(key)
        if fact is None or not fact.known or fact.value is None:
            return otherwise
        return fact.value

    def mapping(self, key: str) -> Mapping[str, Any]:
        """A mapping; empty where there is none."""
        value = self.get(key, None)
        return value if isinstance(value, Mapping) else {}
