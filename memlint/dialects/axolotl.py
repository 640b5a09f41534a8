"""Axolotl YAML. Read at axolotl 067b021c8b: `utils/schemas/*.py`, `utils/config/__init__.py`, `core/builders/*.py`,
`loaders/{model,adapter}.py`.

Weights are held in the training dtype (full fine-tuning has no fp32 master), `bf16: auto` asks the card.
"""

from __future__ import annotations

from memlint.dialects.axolotl_objective import evaluation, loss, objective
from memlint.dialects.axolotl_settings import NOTE, Settings, refused
from memlint.dialects.bitsandbytes import dtype
from memlint.dialects.context import Context
from memlint.dialects.deepspeed import linked
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, names, number, rename, text
from memlint.dialects.fsdp import fsdp_facts, nested, unprefixed
from memlint.facts import Fact, choices, default, fixed, unknown
from memlint.facts.keys import normalise
from memlint.read.document import Document
from memlint.typed import Any

NAME = "axolotl"
FRAGMENT = False
INTERPOLATES = False

_CERTAIN = frozenset({"micro_batch_size", "sequence_len", "sample_packing", "datasets", "lora_target_linear", "rl",
                      "val_set_size",
                      "load_in_4bit", "gradient_accumulation_steps", "pretraining_dataset", "num_epochs", "adapter"})  # fmt: skip

_LEGACY_ATTENTION = {
    "xformers_attention": "xformers", "flex_attention": "flex_attention", "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa", "eager_attention": "eager",
}  # fmt: skip
_ATTENTION = {"flash": "flash_attention_2", "flex": "flex_attention", "sdp": "sdpa"}
_CCE = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"


_ADAPTERS = frozenset({"lora", "qlora", "llama-adapter"})
"""The built-in values of `adapter`; the name of a plugin's alone does not make a file Axolotl's."""


def recognise(document: Document) -> str | None:
    """`base_model` with at least one other key of the schema; Ludwig and mergekit have a `base_model` too."""
    keys = document.keys
    found = sorted(keys & _CERTAIN)
    if document.text_at("base_model") is None or keys & {"model_name_or_path", "input_features", "merge_method"}:
        return None
    if not found or (found == ["adapter"] and document.text_at("adapter") not in _ADAPTERS):
        return None  # results of an evaluation name a base model and an adapter's folder
    return f"has base_model and {found[0]}"


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of an Axolotl configuration."""
    context = context or Context()
    settings = Settings(native)
    result = _defaulted(settings)
    result |= rename(native, {
        "model.id": ("base_model", text),
        "compile": ("torch_compile", lambda value: value == "auto" or boolean(value)),
        "parallel.tensor": ("tensor_parallel_size", integer),
        "parallel.expert": ("expert_parallel_size", integer),
        "batch.padding_free": ("batch_flattening", boolean),
        "batch.num_generations": ("trl.num_generations", integer),
        "batch.completion_length": ("trl.max_completion_length", integer),
        "generation.gpu_memory_utilization": ("vllm.gpu_memory_utilization", number),
        "model.num_labels": ("num_labels", integer),
        "parallel.find_unused_parameters": ("ddp_find_unused_parameters", boolean),
        "parallel.sync_each_batch": ("accelerator_config.gradient_accumulation_kwargs.sync_each_batch", boolean),
        "compile.mode": ("torch_compile_mode", text),
        "vision.trainable": ("freeze_mm_modules", lambda frozen: not boolean(frozen)),
        "vision.aligner_trainable": ("freeze_mm_modules", lambda frozen: not boolean(frozen)),
    })  # fmt: skip
    result["framework.name"] = fixed(NAME)
    context_size = given(native, "context_parallel_size", "sequence_parallel_degree")
    if context_size is not None:
        result["parallel.context"] = derive(integer, context_size)
    result |= _precision(settings)
    result |= _adapter(settings) | _quantization(settings, result["model.dtype"]) | _checkpointing(settings)
    result |= _attention(settings) | evaluation(settings, result) | loss(settings) | objective(settings)
    result |= _parallel(settings, result, context)
    if result["objective"].value == "grpo":
        result |= _rollout_length(native)
    rollouts = given(native, "trl.use_vllm")
    if rollouts is not None:
        mode = given(native, "trl.vllm_mode") or default("server", NOTE)
        result["generation.vllm"] = derive(lambda on, how: text(how) if boolean(on) else "none", rollouts, mode)
    if settings.on("fp8"):
        result["compute.linear_dtype"] = derive(lambda _: "float8", settings.get("fp8", False))
    frozen = given(native, "unfrozen_parameters")
    if frozen is not None:
        result["trainable.modules"] = derive(names, frozen)
    context.note(refused(settings))
    return result


def _rollout_length(native: Native) -> Facts:
    """GRPO does not cut its prompts at `sequence_len` (`core/trainers/grpo/__init__.py` passes no length but the completion's)."""
    prompt, completion = given(native, "trl.max_prompt_length"), given(native, "trl.max_completion_length")
    if prompt is not None and completion is not None:
        length = derive(lambda head, tail: integer(head) + integer(tail), prompt, completion)
        return {"batch.prompt_length": derive(integer, prompt), "batch.sequence_length": length}
    place = next((fact.origin[0].span for fact in (given(native, "sequence_len"),) if fact is not None and fact.origin), None)
    return {"batch.sequence_length": unknown("prompts have no length limit here", place)}


def _defaulted(settings: Settings) -> Facts:
    accumulation = settings.given("gradient_accumulation_steps")
    total, micro = settings.given("batch_size"), settings.get("micro_batch_size", 1)
    if accumulation is None and total is not None:
        accumulation = derive(lambda whole, part: integer(whole) // integer(part), total, micro)
    packing = settings.get("sample_packing", False)
    result: Facts = {
        "batch.micro_batch_size": derive(integer, micro),
        "batch.gradient_accumulation_steps": derive(integer, accumulation or default(1, NOTE)),
        "batch.sequence_length": derive(integer, settings.get("sequence_len", 512)),
        "batch.packing": derive(boolean, packing),
        "optimizer.name": derive(
            lambda name: normalise("optimizer.name", text(name)), settings.get("optimizer", "adamw_torch_fused")
        ),
    }
    padded = settings.given("pad_to_sequence_len")
    if padded is not None:
        result["batch.pad_to_max_length"] = derive(boolean, padded)
    elif packing.known:
        result["batch.pad_to_max_length"] = derive(boolean, packing, note=NOTE)
    targets = settings.given("optim_target_modules")
    if targets is not None:
        result["optimizer.target_modules"] = derive(names, targets)
    return result


def _precision(settings: Settings) -> Facts:
    """`precision` and `model.dtype` as `resolve_dtype` and the trainer builder make them, with and without bf16 on the card."""
    bf16 = settings.get("bf16", "auto")
    if bf16.known and bf16.value == "auto":
        bf16 = choices(("auto", "auto-without"), bf16.origin[0].span if bf16.origin else None, decided_by="gpu.bf16")
    off = default(None, NOTE)
    others = [settings.given(name) or off for name in ("fp16", "float16", "bfloat16", "load_in_8bit")]

    def resolved(value: Any, fp16: Any, float16: Any, bfloat16: Any, eight: Any) -> tuple[str, str]:
        half = fp16 is not None and boolean(fp16)
        pure_half, pure_brain = bool(float16), bool(bfloat16)
        brain: Any
        if value in ("auto", "auto-without"):
            brain = value == "auto" and not half
            if value == "auto-without" and fp16 is None and not pure_half:
                half = True
        else:
            brain = "full" if value == "full" else boolean(value)
        half = half and not brain
        held = "bfloat16" if brain or pure_brain else "float16" if (eight and boolean(eight)) or half or pure_half else "float32"
        if brain == "full":
            return "fp32", held
        return ("bf16-mixed" if brain or pure_brain else "fp16-mixed" if half else "fp32"), held

    both = derive(resolved, bf16, *others)
    return {"precision": derive(lambda pair: pair[0], both), "model.dtype": derive(lambda pair: pair[1], both)}


def _adapter(settings: Settings) -> Facts:
    method = settings.get("adapter", "none")
    dora = settings.given("peft_use_dora")
    result: Facts = {"adapter.method": derive(
        lambda name, on: ("dora" if on is not None and boolean(on) else "lora") if name in ("lora", "qlora") else _method(name),
        method, dora or default(None, NOTE),
    )}  # fmt: skip
    if result["adapter.method"].value not in ("lora", "dora"):
        return result
    result |= {
        # lora_r and lora_alpha unset are left to peft 0.21.2 (loaders/adapter.py)
        "adapter.r": derive(integer, settings.get("lora_r", 8)),
        "adapter.alpha": derive(number, settings.get("lora_alpha", 8)),
        "adapter.dropout": derive(number, settings.get("lora_dropout", 0.0)),
    }
    layers = settings.given("peft_layers_to_transform")
    if layers is not None:
        result["adapter.config"] = derive(lambda numbers: {"layers_to_transform": list(numbers)}, layers)
    linear, modules = settings.given("lora_target_linear"), settings.given("lora_target_modules")
    if linear is not None and settings.on("lora_target_linear"):
        result["adapter.target_modules"] = derive(lambda _: "all-linear", linear)
    elif modules is not None:
        result["adapter.target_modules"] = derive(names, modules)
    saved = settings.given("lora_modules_to_save")
    if saved is not None:
        result["adapter.modules_to_save"] = derive(names, saved)
    cast = settings.given("peft_autocast_adapter_dtype")
    if cast is None or derive(boolean, cast).value is not False:
        result["adapter.dtype"] = default("float32", "peft 0.21.2: autocast_adapter_dtype")
    return result


def _method(name: Any) -> str:
    return "none" if name in (None, "", "none") else str(name).replace("-", "_")


def _quantization(settings: Settings, held: Fact) -> Facts:
    """Only an adapter quantizes: `load_in_4bit` with `qlora`, `load_in_8bit` with `lora` (`_set_quantization_config`)."""
    off = default(False, NOTE)
    adapter = settings.get("adapter", "none")
    gptq = settings.given("gptq")
    if gptq is not None and settings.on("gptq"):
        return {"quantization.method": derive(lambda _: "gptq", gptq)}
    four, eight = settings.given("load_in_4bit") or off, settings.given("load_in_8bit") or off

    def method(in_4: Any, in_8: Any, name: Any) -> str:
        if boolean(in_4) and name == "qlora":
            return "bnb_4bit"
        return "bnb_8bit" if boolean(in_8) and name == "lora" else "none"

    result: Facts = {"quantization.method": derive(method, four, eight, adapter)}
    other = settings.given("model_quantization_config")
    if other is not None:
        whole = settings.given("model_quantization_config_kwargs.dequantize") or default(False, NOTE)
        result["quantization.method"] = derive(
            lambda name, loose: "none" if boolean(loose) else {"Mxfp4Config": "mxfp4"}.get(name, "fp8"), other, whole
        )
    if result["quantization.method"].value == "bnb_4bit":
        kwargs = nested(settings.native, "bnb_config_kwargs")
        own = {
            "quantization.quant_type": ("bnb_4bit_quant_type", text, default("nf4", NOTE)),
            "quantization.double_quant": ("bnb_4bit_use_double_quant", boolean, default(True, NOTE)),
            "quantization.compute_dtype": ("bnb_4bit_compute_dtype", dtype, held),
            "quantization.storage_dtype": ("bnb_4bit_quant_storage", dtype, default("bfloat16", NOTE)),
        }
        for key, (name, convert, otherwise) in own.items():
            fact = given(kwargs, name)
            result[key] = derive(convert, fact) if fact is not None else otherwise
    as_loaded = settings.given("embeddings_skip_upcast")
    if as_loaded is not None and settings.on("load_in_4bit"):
        result["model.load_upcast"] = derive(lambda skips: not boolean(skips), as_loaded)
    # Llama 4's experts as linears, one by one, are quantized like every linear (`loaders/patch_manager.py`)
    experts = settings.given("quantize_moe_experts", "llama4_linearized_experts")
    if experts is not None:
        result["quantization.experts"] = derive(boolean, experts)
    return result


def _checkpointing(settings: Settings) -> Facts:
    """`gradient_checkpointing` (also `offload`), and activation offloading, which needs it."""
    switch = settings.get("gradient_checkpointing", False)
    result: Facts = {
        "checkpointing.enabled": derive(lambda value: value in ("offload", "offload_disk") or boolean(value), switch)
    }
    offload = settings.given("activation_offloading", "layer_offloading")
    if switch.known and switch.value in ("offload", "offload_disk"):
        result["checkpointing.offload"] = derive(lambda _: True, switch)
    elif settings.given("activation_offloading") is not None and offload is not None:
        result["checkpointing.offload"] = derive(lambda value: bool(value) and value != "false", offload)
    if result["checkpointing.enabled"].value is False:
        return result
    reentrant = settings.given("gradient_checkpointing_kwargs.use_reentrant")
    if reentrant is not None:
        result["checkpointing.use_reentrant"] = derive(boolean, reentrant)
    elif settings.given("gradient_checkpointing_kwargs") is None:
        # utils/config/__init__.py: reentrant, except for RL and partly frozen models; hidden-state offload is not
        plain = settings.given("rl") is None and settings.given("unfrozen_parameters") is None
        hidden = settings.get("activation_offloading", None).value == "hidden_states"
        result["checkpointing.use_reentrant"] = default(plain and not hidden, NOTE)
    else:
        result["checkpointing.use_reentrant"] = default(False, NOTE)
    return result


def _attention(settings: Settings) -> Facts:
    chosen = settings.given("attn_implementation")
    if chosen is not None:
        return {"model.attention": derive(lambda v: normalise("model.attention", _ATTENTION.get(text(v), v)), chosen)}
    for name, implementation in _LEGACY_ATTENTION.items():
        fact = settings.given(name)
        if fact is not None and settings.on(name):
            return {"model.attention": derive(lambda _, value=implementation: value, fact)}
    return {}


def _parallel(settings: Settings, result: Facts, context: Context) -> Facts:
    native = settings.native
    deepspeed = settings.given("deepspeed")
    if deepspeed is not None:
        return linked(deepspeed, result, context)
    config = settings.given("fsdp_config", "fsdp")
    facts_: Facts = {}
    if config is not None and (not config.known or config.value not in ([], {}, False)):
        options = unprefixed(nested(native, "fsdp_config"))
        version = settings.given("fsdp_version") or given(options, "version")
        words = settings.given("fsdp")
        listed = [str(word) for word in words.value] if words is not None and isinstance(words.value, list) else []
        if words is not None and "shard_grad_op" in listed:
            options.setdefault("sharding_strategy", words.with_value("shard_grad_op"))
        if words is not None and "auto_wrap" in listed:
            options.setdefault("auto_wrap_policy", words.with_value("TRANSFORMER_BASED_WRAP"))
        facts_ = fsdp_facts(options, version=version or default(1, NOTE), note=NOTE)
        if settings.given("gradient_checkpointing") is not None and settings.on("gradient_checkpointing"):
            facts_.pop("checkpointing.use_reentrant", None)
    sizes = ("dp_shard_size", "dp_replicate_size", "tensor_parallel_size", "context_parallel_size", "expert_parallel_size")
    degrees = [fact for fact in (settings.given(name) for name in sizes) if fact is not None]
    stated = settings.given("dp_shard_size")
    shard = derive(integer, stated) if stated is not None else None
    # a size of 1 makes no mesh, FSDP takes every GPU (axolotl 067b021c8b `utils/trainer.py`, `setup_parallelism_envs`)
    if shard is not None and shard.value != 1:
        facts_["parallel.data_shard"] = shard
        product = derive(_product, *degrees)
        if product.known:
            facts_["parallel.gpus"] = default(product.value, "product of the parallel sizes")
    return facts_


def _product(*sizes: Any) -> int:
    product = 1
    for size in sizes:
        product *= max(integer(size), 1)
    return product


_WRITE = {
    "batch.micro_batch_size": "micro_batch_size", "batch.gradient_accumulation_steps": "gradient_accumulation_steps",
    "batch.sequence_length": "sequence_len", "batch.packing": "sample_packing", "optimizer.name": "optimizer",
    "checkpointing.enabled": "gradient_checkpointing", "model.attention": "attn_implementation",
    "checkpointing.use_reentrant": "gradient_checkpointing_kwargs.use_reentrant",
    "checkpointing.offload": "activation_offloading", "eval.batch_size": "eval_batch_size",
    "quantization.double_quant": "bnb_config_kwargs.bnb_4bit_use_double_quant",
    "quantization.quant_type": "bnb_config_kwargs.bnb_4bit_quant_type",
    "quantization.compute_dtype": "bnb_config_kwargs.bnb_4bit_compute_dtype",
    "quantization.storage_dtype": "bnb_config_kwargs.bnb_4bit_quant_storage",
    "parallel.reshard_after_forward": "fsdp_config.reshard_after_forward", "adapter.r": "lora_r", "adapter.alpha": "lora_alpha",
    "adapter.dropout": "lora_dropout", "adapter.modules_to_save": "lora_modules_to_save",
    "parallel.tensor": "tensor_parallel_size",
    "parallel.context": "context_parallel_size", "parallel.expert": "expert_parallel_size", "compile": "torch_compile",
    "parallel.sync_each_batch": "accelerator_config.gradient_accumulation_kwargs.sync_each_batch",
    "compile.mode": "torch_compile_mode", "parallel.find_unused_parameters": "ddp_find_unused_parameters",
    "batch.num_generations": "trl.num_generations", "batch.completion_length": "trl.max_completion_length",
    "generation.gpu_memory_utilization": "vllm.gpu_memory_utilization",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where Axolotl cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key in ("precision", "model.dtype"):
        kind = {"bf16-mixed": "bf16", "bfloat16": "bf16", "fp16-mixed": "fp16"}.get(str(value))
        if kind:
            return [("bf16", kind == "bf16"), ("fp16", kind == "fp16")]
        return [("bf16", False), ("fp16", False), ("float16", True)] if value in ("float16", "fp16-true") else None
    if key == "loss.logits" and value == "fused":
        return [("plugins", [_CCE])]
    if key == "adapter.target_modules":
        return [("lora_target_linear", True)] if value == "all-linear" else [("lora_target_modules", value)]
    if key == "quantization.method" and value in ("bnb_4bit", "bnb_8bit"):
        return [("load_in_4bit", value == "bnb_4bit"), ("load_in_8bit", value == "bnb_8bit"),
                ("adapter", "qlora" if value == "bnb_4bit" else "lora")]  # fmt: skip
    if key == "eval.enabled" and value is False:
        return [("val_set_size", 0)]
    if key == "reference_model" and value == "precomputed":
        return [("precompute_ref_log_probs", True)]
    if key == "adapter.method" and value in ("lora", "none"):
        return [("adapter", "lora" if value == "lora" else None)]
    if key == "parallel.wrap_policy" and value == "transformer":
        return [("fsdp_config.auto_wrap_policy", "TRANSFORMER_BASED_WRAP")]
    if key == "parallel.strategy" and value in ("fsdp1", "fsdp2"):
        return [("fsdp_version", int(str(value)[-1]))]
    if key == "parallel.fsdp_sharding":
        return [("fsdp_config.sharding_strategy", str(value).upper())]
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value in ("cpu", "none"):
        return [("fsdp_config.offload_params", value == "cpu")]
    return None


def alternatives(key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """FSDP 2 has no sharding strategy; without an `fsdp_config` there is no FSDP."""
    if key == "parallel.strategy" and value in ("fsdp1", "fsdp2"):
        return [[("fsdp_version", int(str(value)[-1])), ("fsdp_config.auto_wrap_policy", "TRANSFORMER_BASED_WRAP")]]
    if key == "parallel.fsdp_sharding" and value in ("full_shard", "shard_grad_op"):
        return [[("fsdp_config.reshard_after_forward", value == "full_shard")]]
    return []
