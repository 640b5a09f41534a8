"""LLaMA-Factory's v1 schema: nested plugin configurations beside flat training arguments.

Read at LLaMA-Factory ff6d4d12ee, `v1/config/*.py`, `v1/core/base_trainer.py`, `v1/plugins/model_plugins/{peft,quantization}.py`.
"""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.dialects.deepspeed import linked
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number, text
from memlint.dialects.peft import target_modules
from memlint.facts import Fact, default, fixed
from memlint.facts.keys import normalise
from memlint.read.document import Document
from memlint.typed import Any

NAME = "llama_factory_v1"
FRAGMENT = False
INTERPOLATES = True
NOTE = "LLaMA-Factory v1 ff6d4d12ee default"

_PLUGINS = frozenset({"dist_config", "peft_config", "quant_config", "kernel_config", "init_config", "optim_config",
                      "lr_scheduler_config"})  # fmt: skip
_TRAINING = frozenset({"train_dataset", "cutoff_len", "micro_batch_size", "global_batch_size", "sample_backend", "model_class",
                       "enable_activation_checkpointing", "batching_strategy"})  # fmt: skip


def recognise(document: Document) -> str | None:
    """A text `model` with a plugin configuration and a training argument of v1."""
    keys = document.keys
    plugins, training = sorted(keys & _PLUGINS), sorted(keys & _TRAINING)
    if plugins and len(training) >= 2 and ("model" not in keys or document.text_at("model") is not None):
        return f"has {plugins[0]} and {training[0]}"
    return None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a v1 configuration."""
    context = context or Context()

    def setting(name: str, otherwise: Any, convert: Any) -> Fact:
        fact = given(native, name)
        return derive(convert, fact) if fact is not None else default(otherwise, NOTE)

    result: Facts = {
        "framework.name": fixed("llama_factory"),
        "model.id": setting("model", "Qwen/Qwen3-4B-Instruct-2507", text),
        "batch.micro_batch_size": setting("micro_batch_size", 1, integer),
        "batch.sequence_length": setting("cutoff_len", 2048, integer),
        "precision": setting("bf16", "bf16-mixed", lambda on: "bf16-mixed" if boolean(on) else "fp32"),
        "checkpointing.enabled": setting("enable_activation_checkpointing", True, boolean),
        "checkpointing.use_reentrant": default(False, NOTE),
        "parallel.context": setting("dist_config.cp_size" if "dist_config.cp_size" in native else "cp_size", 1, integer),
        "model.attention": setting("flash_attn", "sdpa", lambda value: normalise("model.attention", text(value))),
    }
    kernels = given(native, "kernel_config.name")
    liger = kernels is not None and kernels.value == "liger_kernel"
    result["loss.logits"] = derive(lambda _: "fused", kernels) if kernels is not None and liger else default("full", NOTE)
    batching = given(native, "batching_strategy")
    if batching is not None:
        result["batch.padding_free"] = derive(lambda name: "padding_free" in text(name), batching)
    expert = given(native, "dist_config.ep_size")
    if expert is not None:
        result["parallel.expert"] = derive(integer, expert)
    optimizer = given(native, "optim_config.name")
    result["optimizer.name"] = derive(text, optimizer) if optimizer is not None else default("adamw_torch", NOTE)
    result |= _adapter(native) | _quantization(native)
    strategy = given(native, "dist_config.name")
    if strategy is not None and strategy.value == "deepspeed":
        result |= linked(given(native, "dist_config.config_file"), result, context)
    elif strategy is not None:
        result["parallel.strategy"] = derive({"fsdp2": "fsdp2", "fsdpturbo": "fsdp2", "ddp": "ddp"}.__getitem__, strategy)
    return result


def _adapter(native: Native) -> Facts:
    method = given(native, "peft_config.name")
    if method is None:
        return {"adapter.method": default("none", NOTE)}
    result: Facts = {"adapter.method": derive(lambda name: "lora" if name == "lora" else "none", method)}
    if method.value == "freeze":
        layers = given(native, "peft_config.freeze_trainable_layers") or default(2, NOTE)
        result["trainable.layers"] = derive(integer, layers)
    if method.value == "lora":
        for key, name, otherwise, convert in (
            ("adapter.r", "r", 8, integer), ("adapter.alpha", "lora_alpha", 16, number), ("adapter.dropout", "lora_dropout",
            0.05, number),
        ):  # fmt: skip
            fact = given(native, f"peft_config.{name}")
            result[key] = derive(convert, fact) if fact is not None else default(otherwise, NOTE)
        modules = given(native, "peft_config.target_modules")
        if modules is None:
            result["adapter.target_modules"] = default("all-linear", NOTE)
        else:
            named = target_modules({"target_modules": modules})
            result["adapter.target_modules"] = derive(lambda value: "all-linear" if value in ("all", ["all"]) else value, named)
    return result


def _quantization(native: Native) -> Facts:
    name = given(native, "quant_config.name")
    if name is None:
        return {"quantization.method": default("none", NOTE)}
    bits = given(native, "quant_config.quantization_bit") or default(4, NOTE)
    return {"quantization.method": derive(lambda _, width: f"bnb_{integer(width)}bit", name, bits)}


_WRITE = {
    "batch.micro_batch_size": "micro_batch_size", "batch.sequence_length": "cutoff_len", "model.attention": "flash_attn",
    "checkpointing.enabled": "enable_activation_checkpointing", "adapter.r": "peft_config.r",
    "adapter.alpha": "peft_config.lora_alpha", "adapter.dropout": "peft_config.lora_dropout",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where v1 cannot say it."""
    if key == "precision" and value in ("bf16-mixed", "fp32"):
        return [("bf16", value == "bf16-mixed")]
    if key == "quantization.method" and value in ("bnb_4bit", "bnb_8bit"):
        return [("quant_config.name", "bnb"), ("quant_config.quantization_bit", 4 if value == "bnb_4bit" else 8)]
    if key == "adapter.target_modules":
        return [("peft_config.target_modules", "all" if value == "all-linear" else value)]
    if key == "adapter.method" and value == "lora":
        return [("peft_config.name", "lora")]
    if key == "loss.logits" and value == "fused":
        return [("kernel_config.name", "liger_kernel")]
    if key == "parallel.strategy" and value in ("fsdp2", "ddp"):
        return [("dist_config.name", value)]
    return [(_WRITE[key], value)] if key in _WRITE else None
