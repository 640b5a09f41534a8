"""Megatron-Bridge YAML: overrides of a recipe's `ConfigContainer`, or a whole one as it was saved beside a checkpoint.

Read at Megatron-Bridge 067f987df: `training/config.py`, `peft/lora.py`, `training/mixed_precision.py`. What the file does not say is
decided by the recipe that the launch names, so it is not known here.
"""

from __future__ import annotations

from memlint.dialects import megatron
from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, derive, given, integer, number, text
from memlint.dialects.fsdp import nested
from memlint.facts import Fact, default, fixed, unknown
from memlint.read.document import Document
from memlint.typed import Any

NAME = "megatron_bridge"
FRAGMENT = False
INTERPOLATES = True
NOTE = "Megatron-Bridge 067f987df default"

SECTIONS = ("model", "train", "optimizer", "ddp", "dist", "validation", "dataset")
"""Sections whose settings are Megatron-Core's own, later ones winning; the data set's sequence length wins over the model's."""
_CORE = {
    "micro_batch_size": "train", "global_batch_size": "train", "seq_length": "dataset", "use_distributed_optimizer": "ddp",
    "optimizer_cpu_offload": "optimizer", "use_precision_aware_optimizer": "optimizer", "bf16": "optimizer", "fp16": "optimizer",
}  # fmt: skip
"""The section in which a setting is written; the others are the model's."""
_SIBLINGS = frozenset({"dataset", "scheduler", "checkpoint", "logger", "ddp", "dist", "rng", "optimizer", "peft"})


def recognise(document: Document) -> str | None:
    """`train` with Megatron's batch sizes, beside sections of a `ConfigContainer`."""
    size = next(
        (k for k in ("micro_batch_size", "global_batch_size", "train_iters") if document.at(f"train.{k}") is not None), None
    )
    own = sorted(document.keys & _SIBLINGS)
    shape = next((k for k in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "seq_length")
                  if document.at(f"model.{k}") is not None), None)  # fmt: skip
    if size is None or len(own) < 2 or (shape is None and document.at("dataset.seq_length") is None):
        return None
    return f"has train.{size} and {f'model.{shape}' if shape else 'dataset.seq_length'}"


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of the file. A launch adds the recipe's or the model's name as `recipe`."""
    flat: dict[str, Fact] = {}
    for section in SECTIONS:
        flat |= {name: fact for name, fact in nested(native, section).items() if not (fact.known and fact.value is None)}
    result = {"framework.name": fixed(NAME)} | megatron.core(flat, NOTE, assume=False) | _precision(native, flat)
    result |= _model(native, flat) | _adapter(native)
    result["objective"] = default("causal_lm", NOTE)
    if given(native, "model.teacher", "model.kd_config") is not None:
        result["objective"] = fixed("knowledge_distillation")
        result["reference_model"] = unknown("the teacher of model.teacher")
    return result


def _precision(native: Native, flat: Native) -> Facts:
    """A name such as `bf16_mixed` (what Megatron calls mixed: bf16 weights, an fp32 master), or the fields of its configuration."""
    named = given(native, "mixed_precision")
    if named is not None and isinstance(named.value, str):
        half = "fp16" if "fp16" in named.value and "bf16" not in named.value else "bf16"
        found = megatron.precision({half: named.with_value(True)}, NOTE)
        recipe = next((r for r in ("mxfp8", "nvfp4", "fp8") if f"with_{r}" in named.value), None)
        dtype = {"fp8": "float8"}.get(str(recipe), recipe)
        return found | ({"compute.linear_dtype": named.with_value(dtype)} if dtype else {})
    stated = {**flat, **nested(native, "mixed_precision")}
    return megatron.precision(stated, NOTE) if {"bf16", "fp16"} & stated.keys() else {}


def _model(native: Native, flat: Native) -> Facts:
    """The network's sizes where a whole configuration states them, else the recipe that the launch names."""
    if "num_layers" in flat and "hidden_size" in flat:
        return megatron.model({**flat, **{k: f for k, f in nested(native, "model").items() if k == "vocab_size"}})
    source = given(native, "checkpoint.hf_source_path", "recipe")
    return {"model.id": derive(text, source) if source is not None else unknown("the recipe of the launch decides the model")}


def _adapter(native: Native) -> Facts:
    """`peft: {dim, alpha}` overrides the recipe's LoRA; without it the recipe decides."""
    rank = given(native, "peft.dim")
    if rank is None:
        return {}
    kind = given(native, "peft._target_") or default("LoRA", NOTE)
    alpha, dropout = given(native, "peft.alpha"), given(native, "peft.dropout")
    modules = given(native, "peft.target_modules")
    return {
        "adapter.method": derive(lambda _, name: "dora" if "dora" in text(name).lower() else "lora", rank, kind),
        "adapter.r": derive(integer, rank),
        "adapter.alpha": derive(number, alpha) if alpha is not None else default(32, NOTE),
        "adapter.dropout": derive(number, dropout) if dropout is not None else default(0.0, NOTE),
        "adapter.target_modules": derive(megatron.targets, modules) if modules is not None
        else default(["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"], NOTE),
    }  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> `section.setting`; None where Megatron-Bridge cannot say it. Recomputation is not switched off: a recipe may
    have it on for a reason that the file does not show."""
    if (
        key == "checkpointing.enabled" and not value
    ) or key == "model.attention":  # an enumeration's member, in YAML a `_target_`
        return None
    if key == "precision" and value in ("bf16-true", "fp16-true"):
        return [("mixed_precision", value.replace("-true", "_mixed"))]
    adapters = {"adapter.r": "peft.dim", "adapter.alpha": "peft.alpha", "adapter.dropout": "peft.dropout"}
    if key in adapters:
        return [(adapters[key], value)]
    pairs = megatron.write(key, value)
    return [(f"{_CORE.get(name, 'model')}.{name}", native) for name, native in pairs] if pairs else None
