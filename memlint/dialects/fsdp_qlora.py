"""The flags of Answer.AI's `fsdp_qlora/train.py` (05ed9f2): every setting is a flag with a default, there is no file."""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number, text
from memlint.facts import Fact, default, fixed, unknown
from memlint.typed import Any

NAME = "fsdp_qlora"
NOTE = "fsdp_qlora 05ed9f2 default"

_TYPES = {
    "full": ("none", "none"), "lora": ("lora", "none"), "custom_lora": ("lora", "none"), "qlora": ("lora", "bnb_4bit"),
    "custom_qlora": ("lora", "bnb_4bit"), "hqq_lora": ("lora", "hqq"), "hqq_dora": ("dora", "hqq"), "bnb_dora": ("dora",
    "bnb_4bit"),
    "bnb_llama_pro": ("none", "bnb_4bit"), "hqq_llama_pro": ("none", "hqq"),
}  # fmt: skip
"""`train_type` -> adapter and quantization."""

_PRECISIONS = {
    "bf16": ("bf16-true", "bfloat16", "bfloat16"), "fp32": ("fp32", "float32", "float16"),
    "fp16_autocast": ("fp16-mixed", "float32", "float16"), "bf16_autocast": ("bf16-mixed", "float32", "bfloat16"),
    "bf16_buffers_autocast": ("bf16-mixed", "bfloat16", "bfloat16"),
}  # fmt: skip
"""`precision` -> mode, weights, compute dtype."""

_SHARDING = {
    "full_shard": "full_shard", "shard_grad_op": "shard_grad_op", "ddp": "no_shard", "hybrid_full_shard": "hybrid_shard",
    "hybrid_shard_grad_op": "hybrid_shard_zero2",
}  # fmt: skip
_OPTIMIZERS = {"adamw": "adamw_torch", "adam": "adam", "sgd": "sgd", "adadelta": "adadelta"}
_TARGETS = ["k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj"]


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of the flags (`--train_type` is `train_type` here)."""

    def flag(name: str, otherwise: Any, convert: Any) -> Fact:
        fact = given(native, name)
        return derive(convert, fact) if fact is not None else default(otherwise, NOTE)

    kind = derive(_TYPES.__getitem__, given(native, "train_type") or default("qlora", NOTE))
    mode = derive(_PRECISIONS.__getitem__, given(native, "precision") or default("bf16", NOTE))
    world = given(native, "world_size")
    result: Facts = {
        "framework.name": fixed(NAME),
        "model.id": flag("model_name", "meta-llama/Llama-2-7b-hf", text),
        "objective": fixed("causal_lm"),
        "adapter.method": derive(lambda pair: pair[0], kind),
        "quantization.method": derive(lambda pair: pair[1], kind),
        "precision": derive(lambda triple: triple[0], mode),
        "model.dtype": derive(lambda triple: triple[1], mode),
        "batch.micro_batch_size": flag("batch_size", 1, integer),
        "batch.sequence_length": flag("context_length", 512, integer),
        "batch.gradient_accumulation_steps": flag("gradient_accumulation_steps", 1, integer),
        "batch.packing": default(False, NOTE),
        "optimizer.name": flag("optimizer", "adamw_torch", _OPTIMIZERS.__getitem__),
        "checkpointing.enabled": flag("use_gradient_checkpointing", True, boolean),
        "checkpointing.use_reentrant": flag("reentrant_checkpointing", False, boolean),
        "checkpointing.offload": flag("use_activation_cpu_offload", False, boolean),
        "loss.logits": default("full", NOTE),
        "eval.enabled": default(False, NOTE),
        "reference_model": default("none", NOTE),
        "parallel.strategy": default("fsdp1", NOTE),
        "parallel.fsdp_sharding": flag("sharding_strategy", "full_shard", _SHARDING.__getitem__),
        "parallel.offload_params": flag("use_cpu_offload", "cpu", lambda on: "cpu" if boolean(on) else "none"),
        "parallel.offload_optimizer": flag("use_cpu_offload", "cpu", lambda on: "cpu" if boolean(on) else "none"),
        "parallel.wrap_policy": default("transformer", NOTE),
        "parallel.gpus": derive(integer, world)
        if world is not None and world.value not in (-1, "-1")
        else unknown("every visible GPU"),
        "parallel.nodes": default(1, NOTE),
    }
    if result["quantization.method"].value == "bnb_4bit":
        result |= {
            "quantization.quant_type": default("nf4", NOTE),
            "quantization.double_quant": default(True, NOTE),
            "quantization.compute_dtype": derive(lambda triple: triple[2], mode),
            "quantization.storage_dtype": derive(lambda triple: triple[1], mode),
        }
    if result["adapter.method"].value in ("lora", "dora"):
        result |= {
            "adapter.r": flag("lora_rank", 64, integer),
            "adapter.alpha": flag("lora_alpha", 16, number),
            "adapter.dropout": flag("lora_dropout", 0.1, number),
            "adapter.target_modules": default(_TARGETS, NOTE),
            "adapter.dtype": derive(lambda triple: triple[1], mode),
        }
    return result


_WRITE = {
    "batch.micro_batch_size": "batch_size", "batch.sequence_length": "context_length",
    "batch.gradient_accumulation_steps": "gradient_accumulation_steps", "checkpointing.enabled": "use_gradient_checkpointing",
    "checkpointing.use_reentrant": "reentrant_checkpointing", "checkpointing.offload": "use_activation_cpu_offload",
    "adapter.r": "lora_rank", "adapter.alpha": "lora_alpha", "adapter.dropout": "lora_dropout", "parallel.gpus": "world_size",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> flag; None where the script cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "precision":
        name = {triple[0]: flag for flag, triple in reversed(_PRECISIONS.items())}.get(str(value))
        return [("precision", name)] if name else None
    if key == "optimizer.name":
        named = {canonical: flag for flag, canonical in _OPTIMIZERS.items()}.get(str(value))
        return [("optimizer", named)] if named else None
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value in ("cpu", "none"):
        return [("use_cpu_offload", value == "cpu")]
    return None
