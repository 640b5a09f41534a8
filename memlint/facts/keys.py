"""The canonical keys of a `TrainingRun`: names, types, allowed values and meaning.

`parse` reads a `--set key=value`, `normalise` gives a value its canonical spelling. The vocabulary is shared by every dialect,
by `run.yaml`, by the rule language and by the JSON output.
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.typed import Any, NamedTuple


class Key(NamedTuple):
    """One canonical key. `kind` is text, int, number, bool, names (a list of names or one pattern), mapping or any.

    `values` are the allowed texts of a closed vocabulary (empty = open).
    """

    name: str
    kind: str
    meaning: str
    values: tuple[str, ...] = ()


DTYPES = ("float32", "bfloat16", "float16", "float8", "int8", "uint8")
PRECISIONS = ("fp32", "bf16-mixed", "fp16-mixed", "bf16-true", "fp16-true")
ATTENTIONS = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flash_attention_4", "flex_attention", "xformers")
QUANTIZATIONS = (
    "none", "bnb_4bit", "bnb_8bit", "gptq", "awq", "hqq", "eetq", "aqlm", "fp8", "mxfp4", "int8", "int4", "torchao_nf4",
    "compressed_tensors",
)  # fmt: skip
STRATEGIES = ("none", "dp", "ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3", "device_map", "megatron")
OFFLOADS = ("none", "cpu", "nvme")
LOGITS = ("full", "chunked", "fused", "none")
REFERENCES = ("none", "copy", "precomputed")


def _keys() -> dict[str, Key]:
    rows: tuple[tuple[str, str, str] | tuple[str, str, str, tuple[str, ...]], ...] = (
        ("model.id", "text", "hub id or local path, as written"),
        ("model.config", "mapping", "inline config of a model that is built, not loaded"),
        ("model.dtype", "text", "dtype in which the base weights are held on the GPU", DTYPES),
        ("model.device_map", "text", "how the model is spread over devices: auto, balanced, sequential, or explicit"),
        ("model.attention", "text", "attention implementation", ATTENTIONS),
        ("model.use_cache", "bool", "the model returns keys and values, where the framework leaves that to its configuration"),
        ("model.checkpoint", "text", "the checkpoint as written, when model.id is its base architecture"),
        ("model.output_hidden_states", "bool", "every forward returns the hidden states or attentions of all layers"),
        ("model.layers_override", "int", "number of layers actually built"),
        ("model.load_upcast", "bool", "embedding and head pass through float32 while the model is loaded (axolotl, for an adapter)"),
        ("model.mtp_layers", "int", "further layers that predict later tokens, each with a loss of its own"),
        ("model.norm_dtype", "text", "norm weights held in another dtype (kbit preparation)", DTYPES),
        ("model.num_labels", "int", "classifier size"),
        ("model.padded_vocab_multiple", "int", "vocabulary padded up to a multiple of this"),
        ("model.params", "number", "parameter count given instead of an architecture"),
        ("model.tie_word_embeddings", "bool", "overrides the model's own config"),
        ("model.vision_config", "mapping", "vision tower, when the catalogue has only the text part"),
        ("model.companions", "mapping", "frozen models on the card beside the trained one (reward model, teacher): id -> dtype, or null"),
        ("model.value_model", "text", "value model that PPO trains beside the policy"),
        ("quantization.method", "text", "weight quantization of the frozen base", QUANTIZATIONS),
        ("quantization.quant_type", "text", "4-bit data type", ("nf4", "fp4")),
        ("quantization.double_quant", "bool", "the quantization constants are quantized too"),
        ("quantization.compute_dtype", "text", "dtype of the dequantized matmul", DTYPES),
        ("quantization.storage_dtype", "text", "dtype of the packed storage (FSDP needs it equal to the rest)", DTYPES),
        ("quantization.bits", "int", "bits a weight"),
        ("quantization.group_size", "int", "weights a quantization group"),
        ("quantization.experts", "bool", "stacked experts, which are no linears, are quantized too"),
        ("quantization.skip_modules", "names", "linears left in model.dtype"),
        ("adapter.method", "text", "PEFT method; none = full fine-tuning"),
        ("adapter.r", "int", "rank"),
        ("adapter.alpha", "number", "scaling numerator"),
        ("adapter.dropout", "number", "dropout before the adapter"),
        ("adapter.target_modules", "names", "adapted modules: names, a regex, or all-linear"),
        ("adapter.modules_to_save", "names", "modules trained in full beside the adapter"),
        ("adapter.dtype", "text", "dtype of the trainable adapter weights", DTYPES),
        ("adapter.config", "mapping", "remaining options of the PEFT method"),
        ("adapter.implementation", "text", "litgpt_fused_qkv: LoRA on slices of one fused qkv linear"),
        ("adapter.prompt_length", "int", "prompt tokens (a layer for LLaMA-Adapter)"),
        ("adapter.start_layer", "int", "first layer that has an adapter"),
        ("trainable.modules", "names", "patterns of the parameters that are trained; the rest is frozen"),
        ("trainable.layers", "int", "number of last layers that are trained (freeze tuning)"),
        ("precision", "text", "autocast mode; -true: no autocast, weights in that dtype", PRECISIONS),
        ("batch.micro_batch_size", "int", "samples per device and forward pass"),
        ("batch.gradient_accumulation_steps", "int", "micro batches an optimizer step"),
        ("batch.sequence_length", "int", "tokens a sample after truncation, padding or packing"),
        ("batch.sequence_length_is_cap", "bool", "sequence_length is a truncation cap; real samples are no longer"),
        ("batch.sequence_length_max", "int", "upper bound when the length itself is unknown"),
        ("batch.truncation", "bool", "samples longer than some length are cut or left out"),
        ("batch.global_batch_size", "int", "samples an optimizer step over all devices, where the input states it"),
        ("batch.packing", "bool", "several samples in one row"),
        ("batch.padding_free", "bool", "samples of a batch are concatenated, not padded"),
        ("batch.pad_to_max_length", "bool", "every sample is padded to sequence_length"),
        ("batch.prompt_length", "int", "cap of the prompt part"),
        ("batch.completion_length", "int", "cap of the completion part"),
        ("batch.num_generations", "int", "completions a prompt (GRPO, RLOO)"),
        ("batch.auto_find", "bool", "the batch size shrinks itself on OOM (auto_find_batch_size)"),
        ("batch.frames", "int", "video frames"),
        ("batch.height", "int", "video height, pixels"),
        ("batch.width", "int", "video width, pixels"),
        ("batch.image_size", "int", "square image side, pixels"),
        ("batch.images", "int", "images a sample"),
        ("batch.image_tiles", "int", "pieces an image is cut into, the whole included"),
        ("batch.latent_tokens", "int", "transformer tokens from the latents, a sample"),
        ("batch.text_tokens", "int", "text-condition tokens a sample"),
        ("optimizer.name", "text", "a name of transformers.training_args.OptimizerNames"),
        ("optimizer.in_backward", "bool", "optimizer step fused into backward"),
        ("optimizer.foreach", "bool", "multi-tensor implementation"),
        ("optimizer.wide_embeddings", "bool", "embeddings have 32-bit states under an 8-bit optimizer, as the Trainer registers"),
        ("optimizer.grad_dtype", "text", "dtype of the accumulated gradients", DTYPES),
        ("optimizer.keeps_half_copy", "bool", "a persistent 16-bit weight copy beside fp32 weights"),
        ("optimizer.master_weights", "bool", "fp32 master copy of the trainable weights inside the optimizer"),
        ("optimizer.exp_avg_dtype", "text", "dtype of Adam's running mean, where it can be chosen", DTYPES),
        ("optimizer.exp_avg_sq_dtype", "text", "dtype of Adam's running mean of squares, where it can be chosen", DTYPES),
        ("optimizer.precision_aware", "bool", "Megatron's precision-aware optimizer"),
        ("optimizer.rank", "int", "projection rank (GaLore, APOLLO)"),
        ("optimizer.target_modules", "names", "modules whose gradients are projected (GaLore, APOLLO)"),
        ("checkpointing.enabled", "bool", "gradient (activation) checkpointing"),
        ("checkpointing.use_reentrant", "bool", "the reentrant implementation"),
        ("checkpointing.input_grads", "bool", "the embeddings' output requires gradients (reentrant checkpointing of a frozen base)"),
        ("checkpointing.offload", "bool", "saved activations go to the CPU"),
        ("checkpointing.mode", "text", "what is checkpointed",
         ("none", "full", "selective_op", "selective_layer", "selective_core_attention")),
        ("checkpointing.layer_frequency", "int", "selective_layer: every n-th layer is checkpointed"),
        ("loss.logits", "text", "whether the batch x length x vocabulary logits are materialised", LOGITS),
        ("loss.chunk_tokens", "int", "lm_head is applied in chunks of this many tokens"),
        ("loss.num_chunks", "int", "lm_head output is split into this many chunks"),
        ("loss.ce_chunk_tokens", "int", "full logits, the cross entropy over them is chunked"),
        ("loss.keeps_chunks", "bool", "all logit chunks stay alive until backward"),
        ("loss.kernel", "text", "loss kernel",
         ("torch_ce", "triton_ce", "liger_fused_linear_ce", "cut_cross_entropy", "te_fused_ce", "megatron_fused_ce",
          "unsloth_ce")),
        ("loss.reduction", "text", "logits_mean: the loss is logits.mean(), no labels"),
        ("loss.upcast_fp32", "bool", "logits are copied to fp32 before the loss"),
        ("trainer.outputs_fp32", "bool", "accelerate converts the model's outputs to fp32"),
        ("kernels", "names", "fused kernels that replace modules: rms_norm, rope, swiglu, glu, lora, xielu, gated_delta"),
        ("compile", "bool", "torch.compile (or thunder) is on"),
        ("compile.mode", "text", "torch.compile's mode"),
        ("compile.scope", "text", "what is compiled: the whole model, or its blocks one by one", ("model", "blocks")),
        ("compile.executor", "any", "thunder executors"),
        ("compute.linear_dtype", "text", "low-precision linears", ("float8", "mxfp8", "nvfp4")),
        ("objective", "text", "what is trained: causal_lm, seq2seq_lm, dpo, kto, orpo, reward, grpo, ppo, ..."),
        ("reference_model", "text", "second frozen model on the GPU", REFERENCES),
        ("generation.vllm", "text", "vLLM for rollouts: none, server, colocate", ("none", "server", "colocate")),
        ("generation.gpu_memory_utilization", "number", "share of the card that a colocated vLLM takes"),
        ("generation.sleep", "bool", "the colocated vLLM frees its memory during the training step"),
        ("generation.batch_size", "int", "sequences a device that the trained model generates at a time"),
        ("generation.gathers_model", "bool", "under ZeRO-3 the whole model is gathered on each GPU for generation"),
        ("generation.tensor", "int", "tensor-parallel degree of the rollout engine"),
        ("parallel.gpus", "int", "GPUs a node"),
        ("parallel.nodes", "int", "nodes"),
        ("parallel.strategy", "text", "how the training is distributed", STRATEGIES),
        ("parallel.offload_params", "text", "where sharded parameters rest", OFFLOADS),
        ("parallel.offload_optimizer", "text", "where optimizer states rest", OFFLOADS),
        ("parallel.offload_optimizer_share", "number", "share of the optimizer states that is offloaded, where it is not all"),
        ("parallel.offload_gradients", "text", "where gradients rest", OFFLOADS),
        ("parallel.wrap_policy", "text", "FSDP wrapping", ("none", "transformer", "size")),
        ("parallel.tensor", "int", "tensor-parallel degree"),
        ("parallel.tensor_plan", "text", "transformers' tp_plan: tensor parallel over all processes"),
        ("parallel.pipeline", "int", "pipeline-parallel degree"),
        ("parallel.context", "int", "context (sequence) parallel degree"),
        ("parallel.expert", "int", "expert-parallel degree"),
        ("parallel.expert_tensor", "int", "tensor-parallel degree of experts (Megatron: that of the rest; ms-swift: 1)"),
        ("parallel.find_unused_parameters", "bool", "DDP looks for parameters that took no part in the loss"),
        ("parallel.static_graph", "bool", "DDP's graph is the same in every step"),
        ("parallel.gradient_as_bucket_view", "bool", "DDP's gradients are views of its buckets, not copies"),
        ("parallel.state_dict_type", "text", "what FSDP saves",
         ("full_state_dict", "sharded_state_dict", "local_state_dict")),
        ("parallel.cpu_ram_efficient_loading", "bool", "one FSDP rank loads the checkpoint, the others receive it"),
        ("parallel.zero3_init", "bool", "ZeRO-3 shards the weights while the model is built"),
        ("parallel.zero3_leaf_modules", "bool", "ZeRO-3 fetches the experts of a layer as one unit"),
        ("parallel.gather_weights_on_save", "bool", "ZeRO-3 gathers the 16-bit weights on one rank to save them"),
        ("parallel.data", "int", "data-parallel degree"),
        ("parallel.data_shard", "int", "FSDP2 shard degree"),
        ("parallel.async_tensor", "bool", "async tensor parallel"),
        ("parallel.backward_prefetch", "text", "FSDP1 backward prefetch"),
        ("parallel.composer_mixed_precision", "text", "Composer FSDP mode", ("DEFAULT", "PURE")),
        ("parallel.context_comm", "text", "context-parallel exchange"),
        ("parallel.distributed_optimizer", "bool", "Megatron optimizer sharded over data and context ranks"),
        ("parallel.expert_dispatch", "text", "expert dispatch"),
        ("parallel.fsdp_sharding", "text", "full_shard, shard_grad_op, hybrid_shard or no_shard",
         ("full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2", "no_shard")),
        ("parallel.last_layer_resharded", "bool", "false: the last block stays gathered after forward"),
        ("parallel.limit_all_gathers", "bool", "FSDP1 rate limiter"),
        ("parallel.mixed_frozen_flat", "bool", "frozen and trainable weights share one flat parameter"),
        ("parallel.sync_each_batch", "bool", "FSDP reduces gradients in every micro-batch instead of accumulating whole ones"),
        ("parallel.mp_param_dtype", "text", "compute dtype of gathered parameters", DTYPES),
        ("parallel.mp_reduce_dtype", "text", "gradient reduction dtype", DTYPES),
        ("parallel.pipeline_schedule", "text", "pipeline schedule"),
        ("parallel.pipeline_first_layers", "int", "layers of the first pipeline rank, where not all have as many"),
        ("parallel.pipeline_last_layers", "int", "layers of the last pipeline rank, where not all have as many"),
        ("parallel.pipeline_chunks", "int", "chunks of layers that a pipeline rank holds (virtual stages)"),
        ("parallel.pipeline_micro_batches", "int", "micro-batches that a pipeline cuts a rank's batch into"),
        ("parallel.reshard_after_forward", "bool", "parameters are freed after forward"),
        ("parallel.sequence_parallel", "bool", "Megatron or DTensor sequence parallel"),
        ("parallel.use_orig_params", "bool", "FSDP1 use_orig_params"),
        ("parallel.wrap_trainable_leaves", "bool", "each trainable leaf is its own FSDP unit"),
        ("parallel.reduce_bucket_size", "number", "DeepSpeed reduce bucket, elements"),
        ("parallel.bucket_of_width", "bool", "the reduce bucket is left to HF: the square of the model's width"),
        ("parallel.allgather_bucket_size", "number", "DeepSpeed all-gather bucket, elements"),
        ("parallel.overlap_comm", "bool", "DeepSpeed overlaps reduction with backward (second bucket)"),
        ("parallel.contiguous_gradients", "bool", "DeepSpeed copies gradients to a contiguous buffer"),
        ("parallel.param_persistence_threshold", "number", "ZeRO-3 keeps smaller parameters on every GPU, elements"),
        ("parallel.max_reuse_distance", "number", "ZeRO-3 keeps parameters used again within this many elements"),
        ("parallel.sub_group_size", "number", "ZeRO-3 elements of a partition stepped at a time"),
        ("parallel.secondary_shard", "int", "ZeRO++ hpZ (zero_hpz_partition_size): ranks that share a second copy of the weights"),
        ("parallel.quantized_weights", "bool", "ZeRO++ qwZ: weights are gathered in int8"),
        ("parallel.quantized_frozen", "bool", "ZeRO-3 keeps frozen weights in int8 (zero_quantized_nontrainable_weights)"),
        ("parallel.quantized_gradients", "bool", "ZeRO++ qgZ: gradients are exchanged in int4 between nodes"),
        ("parallel.swap_buffers", "int", "pinned buffers of an optimizer on NVMe (offload_optimizer.buffer_count)"),
        ("parallel.max_live_parameters", "number", "ZeRO-3 parameters resident a GPU at most, elements"),
        ("parallel.prefetch_bucket_size", "number", "ZeRO-3 prefetch, elements"),
        ("moe.capacity_factor", "number", "token capacity factor"),
        ("moe.pad_to_capacity", "bool", "tokens are padded to capacity"),
        ("vision.trainable", "bool", "the vision tower is trained"),
        ("vision.aligner_trainable", "bool", "the projector is trained"),
        ("vision.llm_trainable", "bool", "the language model is trained"),
        ("vision.max_pixels", "int", "pixel cap of an image after resizing"),
        ("eval.enabled", "bool", "evaluation inside the training"),
        ("eval.batch_size", "int", "samples per device in evaluation"),
        ("eval.keeps_logits", "bool", "evaluation gathers logits"),
        ("eval.accumulation_steps", "int", "evaluation steps before gathered outputs move to the CPU"),
        ("eval.compute_metrics", "bool", "a compute_metrics function is given"),
        ("hardware.gpu", "text", "target card, if the input names one"),
        ("hardware.expandable_segments", "bool", "PYTORCH_CUDA_ALLOC_CONF asks for expandable segments"),
        ("framework.name", "text", "the library whose defaults apply"),
        ("framework.version", "text", "its version"),
        ("framework.versions", "mapping", "versions of every library in force"),
    )  # fmt: skip
    return {row[0]: Key(row[0], row[1], row[2], row[3] if len(row) == 4 else ()) for row in rows}


KEYS: Mapping[str, Key] = _keys()
"""Every canonical key by its name."""

_DTYPE_SPELLINGS = {
    "fp32": "float32", "float": "float32", "32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16",
    "16": "float16", "fp8": "float8", "float8_e4m3fn": "float8",
}  # fmt: skip

_SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "optimizer.name": {
        "adamw_8bit": "adamw_bnb_8bit", "paged_adamw": "paged_adamw_32bit", "lion": "lion_32bit",
        "paged_lion": "paged_lion_32bit", "adamw_torch_foreach": "adamw_torch", "adamw": "adamw_torch",
        "adafactor_torch": "adafactor",
    },
    "framework.name": {
        "llama-factory": "llama_factory", "llamafactory": "llama_factory", "swift": "ms_swift", "ms-swift": "ms_swift",
        "torch": "pytorch", "pytorch-lightning": "lightning", "pytorch_lightning": "lightning", "hf": "transformers",
        "hf_trainer": "transformers", "open-instruct": "open_instruct",
    },
    "model.attention": {
        "flash_attn": "flash_attention_2", "fa2": "flash_attention_2", "flash_attention": "flash_attention_2",
        "flash_attn_2": "flash_attention_2", "fa3": "flash_attention_3", "flash_attn_3": "flash_attention_3",
        "fa4": "flash_attention_4", "flex": "flex_attention", "kernels-community/flash-attn": "flash_attention_2",
        "kernels-community/flash-attn2": "flash_attention_2", "kernels-community/flash-attn3": "flash_attention_3",
        "kernels-community/vllm-flash-attn3": "flash_attention_3",
    },
    "precision": {
        "no": "fp32", "32": "fp32", "32-true": "fp32", "float32": "fp32", "bf16": "bf16-mixed", "fp16": "fp16-mixed",
        "16-mixed": "fp16-mixed", "16-true": "fp16-true", "bfloat16-mixed": "bf16-mixed", "float16-mixed": "fp16-mixed",
    },
    "parallel.strategy": {
        "fsdp": "fsdp1", "zero0": "ddp", "deepspeed_zero1": "zero1", "deepspeed_zero2": "zero2", "deepspeed_zero3": "zero3",
        "zero-1": "zero1", "zero-2": "zero2", "zero-3": "zero3", "single": "none", "dataparallel": "dp",
    },
    "quantization.method": {
        "4bit": "bnb_4bit", "8bit": "bnb_8bit", "nf4": "bnb_4bit", "bitsandbytes_4bit": "bnb_4bit",
        "bitsandbytes_8bit": "bnb_8bit", "null": "none",
    },
    "adapter.target_modules": {"all": "all-linear", "all_linear": "all-linear", "linear": "all-linear"},
    "objective": {"sft": "causal_lm", "pt": "causal_lm", "rm": "reward", "seq2seq": "seq2seq_lm", "mlm": "masked_lm"},
}  # fmt: skip


def normalise(key: str, value: Any) -> Any:
    """The canonical spelling of a value of a key; a value that needs none comes back as it is."""
    if isinstance(value, str):
        text = value.removeprefix("torch.")
        if KEYS.get(key) is not None and KEYS[key].values == DTYPES:
            return _DTYPE_SPELLINGS.get(text.lower(), text.lower())
        spellings = _SPELLINGS.get(key)
        if spellings is None:
            return value
        lowered = value.strip().lower()
        if lowered in spellings:
            return spellings[lowered]
        closed = KEYS[key].values
        return lowered if lowered in closed or key in ("optimizer.name", "framework.name") else value
    if key == "adapter.method" and value is None:
        return "none"
    return value


def check(key: str, value: Any) -> Any:
    """The value in its canonical spelling and type. Raises `ValueError` with a message for a person."""
    known = KEYS.get(key)
    if known is None:
        raise ValueError(f"unknown key {key!r}{_did_you_mean(key, list(KEYS))}")
    if value is None:
        return None
    value = normalise(key, value)
    try:
        value = _typed(known, value)
    except (TypeError, ValueError):
        raise ValueError(f"{key} takes {_article(known.kind)}, not {value!r}") from None
    if known.values and value not in known.values:
        raise ValueError(f"{key} takes one of {', '.join(known.values)}, not {value!r}{_did_you_mean(value, known.values)}")
    return value


def parse(text: str) -> tuple[str, Any]:
    """`key=value` as given to `--set`. Raises `ValueError` with a message for a person."""
    key, separator, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not separator or not key:
        raise ValueError(f"expected key=value, not {text!r}")
    if value.lower() in ("", "null"):
        return key, check(key, None)
    return key, check(key, value)


def _typed(key: Key, value: Any) -> Any:
    if key.kind == "bool":
        return _boolean(value)
    if key.kind == "int":
        number = float(str(value).replace("_", ""))
        if isinstance(value, bool) or number != int(number) or number < 0:
            raise ValueError(value)
        return int(number)
    if key.kind == "number":
        number = float(str(value).replace("_", ""))
        if isinstance(value, bool):
            raise ValueError(value)
        return int(number) if number == int(number) and not isinstance(value, float) else number
    if key.kind == "names":
        return _names(value)
    if key.kind == "mapping":
        if isinstance(value, str):
            import json

            value = json.loads(value)
        if not isinstance(value, Mapping):
            raise ValueError(value)
        return dict(value)
    if key.kind == "text" and not isinstance(value, str):
        raise ValueError(value)
    return value


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    lowered = str(value).lower()
    if lowered in ("true", "yes", "on", "1"):
        return True
    if lowered in ("false", "no", "off", "0"):
        return False
    raise ValueError(value)


def _names(value: Any) -> list[str] | str:
    if isinstance(value, str):
        text = value.strip().removeprefix("[").removesuffix("]")
        parts = [part.strip().strip("'\"") for part in text.split(",") if part.strip()]
        return parts if len(parts) > 1 or text != value.strip() else value
    return [str(item) for item in value]


def _article(kind: str) -> str:
    return {
        "int": "a whole number", "number": "a number", "bool": "true or false", "names": "a list of names",
        "mapping": "a mapping (JSON)", "text": "a text",
    }.get(kind, "another value")  # fmt: skip


def _did_you_mean(word: str, known: Any) -> str:
    from difflib import get_close_matches  # only on the way to an error message

    tails = {name.rsplit(".", 1)[-1]: name for name in known}
    close = get_close_matches(word, known, 1, 0.6)
    if not close and word in tails:
        close = [tails[word]]
    if not close:
        close = [tails[name] for name in get_close_matches(word.rsplit(".", 1)[-1], tails, 1, 0.75)]
    return f" (did you mean {close[0]!r}?)" if close else ""
