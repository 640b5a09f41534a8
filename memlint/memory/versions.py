"""What differs between library versions in how much a step allocates: the stack that a run is taken to use."""

from __future__ import annotations

import re
from collections.abc import Mapping

from memlint.facts import TrainingRun
from memlint.typed import NamedTuple

ACCELERATE_TRAINERS = {
    "transformers", "hf_trainer", "trl", "axolotl", "llama_factory", "llamafactory", "ms_swift", "ms-swift", "unsloth", "accelerate",
    "alignment_handbook", "fastchat", "open_instruct",
}  # fmt: skip
"""Frameworks whose loop is (or wraps) the Hugging Face Trainer or accelerate."""

REPEATS_KV_FLASH = frozenset({"mistral", "mixtral", "phi3", "qwen2", "qwen2_moe", "starcoder2", "jamba"})

NEWEST_TORCH = (2, 13)
NEWEST_PEFT = (0, 21)
NEWEST_TORCHTUNE = (0, 6)
NEWEST_BNB = (0, 49)

OWN_MODELS = ("litgpt", "torchtune", "torchtitan", "megatron", "llm-foundry", "nanogpt")
"""Frameworks with model classes of their own."""

NO_SDPA = frozenset({"bloom", "deberta", "deberta-v2", "gemma2", "gpt_neo", "gpt_oss", "granite_swa", "mpnet", "mpt",
                     "openai-gpt", "swinv2", "t5gemma", "timesformer", "vaultgemma", "wavlm", "xglm"})  # fmt: skip
"""Types whose classes in transformers have no SDPA (`_supports_sdpa`, transformers 5.24), or leave it by default (Gemma 2 of 4.42 to
4.47, `_check_and_enable_sdpa`): they compute attention operation by operation whatever is asked for."""

CACHING = {"transformers", "hf_trainer", "trl", "unsloth"}
"""Frameworks that leave `use_cache` as the model's configuration says (axolotl, FastChat, QLoRA's and Qwen's scripts switch it off)."""

UNSLOTH = (((2024, 6), (4, 37)), ((2024, 8), (4, 42)), ((2024, 12), (4, 43)), ((2025, 6), (4, 46)), ((2026, 3), (4, 51)))
"""Versions of unsloth, and the oldest transformers that those before take (its `pyproject.toml`), mostly the newest of the day."""

OWN_LOOPS = {"pytorch", "peft_method_comparison", "accelerate", "torchao_benchmark"}
"""Loops that keep a name (`outputs`) bound to the model's output during backward."""


class Stack(NamedTuple):
    """Version-dependent behaviour of transformers, bitsandbytes and the training loop."""

    transformers: tuple[int, int]
    peft: tuple[int, int]
    deepspeed: tuple[int, int]
    """Where nothing states it, the newest of the days of torch: before the release that followed."""
    adapters_in_fp32: bool
    """A low-rank pair is made before its layer has its weight, in float32 whatever that is: PEFT up to 0.6 (`tuners/lora/layer.py`,
    `update_layer`; transformers before 4.36 is taken to have one of these)."""
    framework: str
    shifts_logits: bool
    """The loss copies `logits[..., :-1, :]`: transformers before 4.49 (`loss/loss_utils.py`; 4.49 pads the labels instead) and torchtune
    before 0.3 (`recipes/`). Unsloth's models always shifted the labels (2024.1 `models/llama.py`)."""
    upcasts_in_model: bool
    """The model rebinds `logits = logits.float()`, so its output is float32: transformers up to 4.45, torchtune before 0.3
    (`modules/transformer.py`)."""
    loads_checkpoint_dtype: bool
    """`from_pretrained` without dtype takes the checkpoint's: transformers 5 (`modeling_utils.py`)."""
    reentrant_by_default: bool
    """Checkpointing without `use_reentrant`: True up to transformers 4.57, False from 5.0."""
    sdpa_by_default: bool
    """SDPA is chosen when nothing is said: transformers 4.36 and later."""
    keeps_outputs: bool
    """The model's output object (its logits) is alive during backward: loops that bind it to a name, as torchtune's recipes did before
    0.3 ("delete logits before bwd")."""
    returns_cache: bool
    """Training without checkpointing returns keys and values: models of transformers and unsloth, as their configurations say
    `use_cache`. The Trainer switches it off since 5.0 (`training_args.py`); 4.41 to 4.44 make none in training (`modeling_llama.py`)."""
    caches_in_evaluation: bool
    """Evaluation does, under checkpointing as well: these models of 4.41 to 4.44 as all before 5.0, `prediction_step` only leaves keys and
    values out of what it gathers (transformers 4.36, 4.44, 4.57 `trainer.py`, `keys_to_ignore_at_inference`)."""
    caches_tuples: bool
    """They are tuples of tensors: transformers before 4.41, unsloth's own models."""
    drops_outputs: bool
    """The loop unbinds that name before the next step's forward (fsdp_qlora `train.py`, "Delete the output so more memory frees up")."""
    uses_accelerate: bool
    pads: bool
    """The loop pads a batch to its longest sample and passes an attention mask."""
    hooks_embeddings: bool
    """Checkpointing makes the results of all input embeddings need a gradient, frozen towers' too, and not only under an adapter:
    transformers 5 (`modeling_utils.py`, `activation_checkpointing_enable`, "needs_embedding_grads")."""
    names_embedding: bool
    """The models are those of transformers, where a local variable holds the embedding's result until the stack has run."""
    eager_only: frozenset[str]
    wide_dropout_masks: bool
    """Dropout keeps its mask in the activation's dtype: the unfused kernels of 2022 stacks (torch before 1.12)."""
    written_gelu: bool
    """GELU is written out in elementary operations: transformers 2 to 4 with torch before 1.4 (`activations.py`, `_gelu_python`), and
    the BERT of NVIDIA's and DeepSpeed's examples of apex's time, whatever the torch (`BingBertSquad/turing/nvidia_modeling.py`)."""
    packs_half: bool
    """4-bit weights are packed from float16, whatever they were loaded in: bitsandbytes before 0.43 (`nn/modules.py`, `Params4bit.cuda`),
    Lightning Fabric with any (`plugins/precision/bitsandbytes.py`)."""
    bnb_keeps_input: bool
    """bitsandbytes up to 0.43.1 (litgpt pinned 0.41 to 0.42 until the end of 2024)."""
    clones_saved: bool
    """A state dict lays 8-bit weights out anew, and leaves a clone of each behind: bitsandbytes 0.38.0 to 0.39.0 (`nn/modules.py`,
    `Linear8bitLt._save_to_state_dict`; bitsandbytes-foundation/bitsandbytes#324)."""
    gptq_kernels: bool
    """GPTQ's weights are unpacked inside kernels that autograd calls (fms-acceleration 876e2ed, Triton). What transformers loads is trained
    with torch's operations: the other kernels have no backward pass."""
    checkpoints_inside: bool
    """Checkpointing was put inside the FSDP units (`apply_activation_checkpointing` after wrapping): fsdp_qlora. Then a unit's inputs are
    seen once, in forward; outside (transformers, which checkpoints the wrapped block) its hooks see the recomputation's too."""
    converts_outputs: bool
    """Lightning Fabric casts what the model returns (the logits) to float32 (`fabric/plugins/precision/half.py`, `convert_output`)."""
    keeps_loss: bool
    """The loop's `loss` stays bound, with its graph, until the next step's loss replaces it."""
    empties_cache: bool
    """The loop empties the allocator's cache now and then: PEFT's comparisons, after every evaluation (`image-gen/run.py`) or ten
    steps (`MetaMathQA/run.py`)."""
    longest_first: bool
    """The loop's first batch holds the data's one longest sample: lit-gpt in 2023 (`finetune/lora.py`, `longest_seq_ix`), untruncated."""
    litgpt_copies_padding: bool
    """litgpt's `zero_pad` copies out of place (2023)."""
    litgpt_broadcasts: bool
    """litgpt leaves the one key head of multi-query attention to broadcasting: before 24 October 2023 (`lit_gpt/model.py`)."""
    float32_math: bool
    """SDPA's math path raises half inputs to float32: torch 2.5 and later (`allow_fp16_bf16_reduction_math_sdp` is off)."""
    repeats_kv_sdpa: bool
    """SDPA gets K and V expanded to all heads: transformers before 4.54 (`integrations/sdpa_attention.py`), torchtitan before 27 January
    2026 (`repeat_kv`), every torchtune (`modules/attention.py`)."""
    repeats_kv_flash: frozenset[str]
    """Model types whose FlashAttention-2 class expands K and V itself: transformers before 4.48 (4.45.2 and 4.36.2 read)."""
    boolean_masks: bool
    """SDPA gets a boolean mask: transformers 4.53 and later (`masking_utils.py`)."""
    compiles_loss: bool
    """torch.compile covers the loss too: torchtitan from 22 October to 18 December 2024 (`train.py`) and since 2 April 2025
    (`components/loss.py`)."""
    head_apart: bool
    """FSDP2 shards embedding, and final norm with head, as units of their own, of which the latter stays gathered: torchtitan since 28
    July 2025 (`parallelize.py`), accelerate since 1.14 (`utils/fsdp_utils.py`, `fsdp2_prepare_model`)."""
    reshards_root: bool
    """FSDP2 frees the root unit after the model's forward and gathers it again once the loss outside of it has been backward: torchtitan
    before it set head and embedding apart, on torch 2.8 (`_fully_shard/_fsdp_state.py`; 2.7 kept the root whatever was asked for)."""
    recomputes_cudnn: bool
    """Selective checkpointing does not know cuDNN's attention, which is used from Blackwell on: torchtitan from 14 May
    (`models/attention.py`) to 1 December 2025 (`op_sac_save_list`)."""
    foreach_by_default: bool
    """torch.optim picks the multi-tensor implementation on CUDA: torch 2.0 and later; torchtune's recipes ask for `fused`."""
    foreach_lists: int
    """Lists of temporaries of its multi-tensor Adam: before torch 2.1 two (`optim/adamw.py`, `denom` beside `exp_avg_sq_sqrt`)."""
    zeroes_in_place: bool
    """`zero_grad` fills gradients with zeros instead of dropping them: the default before torch 2.0."""
    eager_context: bool
    """CUDA loads every kernel at start: before lazy module loading (CUDA 11.7, torch 1.13)."""
    expandable_segments: bool
    """The framework's launch script sets `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`: torchtitan on one node since 22 October
    2024 (`run_llama_train.sh`, `run_train.sh`); its script for several nodes does not (`multinode_trainer.slurm`)."""
    old: bool
    """Before mid-2024 (torch before 2.3): kernels whose temporaries have not been read."""


def stack_of(run: TrainingRun) -> Stack:
    """The stack of a run, from `framework.version(s)`; the newest known where nothing says."""
    versions = run.value("framework.versions") or {}
    name = str(run.value("framework.name") or "transformers")
    titan = _date(versions, "torchtitan") if name == "torchtitan" else NEVER
    text = states_transformers(run)
    transformers = _version(text) or (5, 24)
    if not text and "torch" in versions and (_version(str(versions["torch"])) or (9, 9)) < (2, 1):
        transformers = (4, 32)
    if not text and name == "unsloth":
        # Whole logits are what it made before its fused loss of 13 August 2025.
        whole = run.value("loss.kernel") == "unsloth_ce" and run.value("loss.logits") == "full"
        version = _version(str(versions.get("unsloth") or "")) or ((2025, 8) if whole else (9999, 0))
        transformers = next((oldest for before, oldest in UNSLOTH if version < before), transformers)
    torch = _version(str(versions.get("torch") or "")) or NEWEST_TORCH
    modern = transformers >= (4, 36)
    peft = _version(str(versions.get("peft") or "")) or (NEWEST_PEFT if modern else (0, 6))
    early_torchtune = name == "torchtune" and (_version(str(versions.get("torchtune") or "")) or NEWEST_TORCHTUNE) < (0, 3)
    return Stack(
        transformers=transformers,
        peft=peft,
        deepspeed=_version(str(versions.get("deepspeed") or "")) or _deepspeed(torch),
        adapters_in_fp32=peft < (0, 7) and name in ACCELERATE_TRAINERS,
        framework=name,
        shifts_logits=(transformers < (4, 49) and name != "unsloth") or early_torchtune,
        upcasts_in_model=transformers < (4, 46) or early_torchtune,
        loads_checkpoint_dtype=transformers >= (5, 0),
        reentrant_by_default=transformers < (5, 0),
        sdpa_by_default=modern,
        keeps_outputs=name in OWN_LOOPS or name == "fsdp_qlora" or early_torchtune,
        drops_outputs=name == "fsdp_qlora",
        returns_cache=name in CACHING and transformers < (5, 0) and (name == "unsloth" or not (4, 41) <= transformers < (4, 45)),
        caches_in_evaluation=name in CACHING and transformers < (5, 0),
        caches_tuples=name == "unsloth" or transformers < (4, 41),
        uses_accelerate=name in ACCELERATE_TRAINERS and transformers >= (4, 30),
        pads=name not in (*OWN_MODELS, "fsdp_qlora"),
        hooks_embeddings=transformers >= (5, 0) and name not in OWN_MODELS,
        names_embedding=name not in OWN_MODELS,
        eager_only=(NO_SDPA if modern else NO_SDPA | {"bert"}) if name not in (*OWN_MODELS, "unsloth") else frozenset(),
        wide_dropout_masks=transformers < (4, 21),
        written_gelu=torch < (1, 4),
        packs_half=name == "litgpt" or (_version(str(versions.get("bitsandbytes") or "")) or NEWEST_BNB) < (0, 43),
        bnb_keeps_input=_keeps_input(name, versions),
        clones_saved=(0, 38) <= _parts(versions.get("bitsandbytes")) <= (0, 39, 0),
        gptq_kernels="fms-acceleration" in versions,
        checkpoints_inside=name == "fsdp_qlora",
        converts_outputs=name in ("litgpt", "lightning", "fabric"),
        keeps_loss=name in OWN_LOOPS or name == "litgpt",
        empties_cache=name == "peft_method_comparison",
        longest_first=name == "litgpt" and torch < (2, 2),
        litgpt_copies_padding=name == "litgpt" and torch < (2, 2),
        litgpt_broadcasts=name == "litgpt" and _date(versions, "lit-gpt", "litgpt") < (2023, 10, 24),
        float32_math=torch >= (2, 5),
        repeats_kv_sdpa=NEVER < titan < (2026, 1, 27) or name == "torchtune" or transformers < (4, 54),
        repeats_kv_flash=REPEATS_KV_FLASH if transformers < (4, 48) else frozenset(),
        boolean_masks=transformers >= (4, 53),
        compiles_loss=(2024, 10, 22) <= titan < (2024, 12, 18) or titan >= (2025, 4, 2),
        head_apart=titan >= (2025, 7, 28) or (name in ACCELERATE_TRAINERS and _accelerate(versions, transformers) >= (1, 14)),
        reshards_root=(2025, 6, 1) <= titan < (2025, 7, 28) and torch >= (2, 8) and "2.8.0a" not in str(versions.get("torch")),
        recomputes_cudnn=(2025, 5, 14) <= titan < (2025, 12, 1),
        foreach_by_default=torch >= (2, 0) and name != "torchtune",
        foreach_lists=1 if torch >= (2, 1) else 2,
        zeroes_in_place=torch < (2, 0) or transformers < (4, 26),
        eager_context=transformers < (4, 25) or torch < (1, 13),
        expandable_segments=titan >= (2024, 10, 22) and int(run.value("parallel.nodes") or 1) == 1,
        old=torch < (2, 3) or transformers < (4, 40),
    )


def states_transformers(run: TrainingRun) -> str:
    """The version of transformers that the run states; empty when nothing does."""
    versions = run.value("framework.versions") or {}
    own = run.value("framework.version") if run.value("framework.name") in (None, "transformers", "hf_trainer") else ""
    return str(versions.get("transformers") or own or "")


Date = tuple[int, int, int]
NEVER: Date = (0, 0, 0)

RELEASED: dict[tuple[int, int], Date] = {
    (2, 0): (2023, 3, 15), (2, 1): (2023, 10, 4), (2, 2): (2024, 1, 30), (2, 3): (2024, 4, 24), (2, 4): (2024, 7, 24),
    (2, 5): (2024, 10, 17), (2, 6): (2025, 1, 29), (2, 7): (2025, 4, 23), (2, 8): (2025, 8, 6), (2, 9): (2025, 10, 15),
    (2, 10): (2026, 1, 21), (2, 11): (2026, 3, 23), (2, 12): (2026, 5, 13), (2, 13): (2026, 7, 8),
}  # fmt: skip
"""When torch was released (PyPI)."""


def _date(versions: Mapping[str, object], *names: str) -> Date:
    """The day, at least, of the package of these names: the one stated, a torch nightly's, or the release of the torch beside it (for an
    undated pre-release the one before); nothing stated means the newest."""
    torch = str(versions.get("torch") or "")
    stated = " ".join(str(versions.get(name) or "") for name in names)
    dated = re.search(r"(?:\b|dev)(20\d\d)-?(\d\d)?-?(\d\d)?", f"{stated} {torch}")
    if dated:
        year, month, day = (int(part or 1) for part in dated.groups())
        return year, month, day
    major, minor = _version(torch) or NEWEST_TORCH
    return RELEASED.get((major, minor - 1 if "a0" in torch else minor), NEVER)


DEEPSPEED: dict[tuple[int, int], Date] = {(0, 12): (2023, 11, 3), (0, 13): (2024, 1, 19)}
"""When the releases of DeepSpeed came that changed what a step allocates."""


def _deepspeed(torch: tuple[int, int]) -> tuple[int, int]:
    """The newest of these before the next torch came."""
    until = min((day for release, day in RELEASED.items() if release > torch), default=NEVER)
    return max((release for release, day in DEEPSPEED.items() if until == NEVER or day < until), default=(0, 11))


def _accelerate(versions: Mapping[str, object], transformers: tuple[int, int]) -> tuple[int, int]:
    """The version of accelerate: where nothing states it the newest, unless transformers is older than 5.0."""
    return _version(str(versions.get("accelerate") or "")) or ((1, 15) if transformers >= (5, 0) else (1, 0))


def _keeps_input(name: str, versions: Mapping[str, object]) -> bool:
    bitsandbytes = str(versions.get("bitsandbytes") or "")
    if bitsandbytes:
        parts = _parts(bitsandbytes)
        return parts < (0, 43, 2) if len(parts) == 3 else parts <= (0, 43)
    return name == "litgpt" and (_version(str(versions.get("torch") or "")) or NEWEST_TORCH) < (2, 5)


def _parts(stated: object) -> tuple[int, ...]:
    """The numbers of a version, at most three; none where nothing is stated."""
    return tuple(int(part) for part in re.findall(r"\d+", str(stated or ""))[:3])


def _version(text: str) -> tuple[int, int] | None:
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else None
