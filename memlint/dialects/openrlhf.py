"""The flags of OpenRLHF's `train_sft`, `train_dpo` and `train_rm` (3c3be623, `openrlhf/cli/*.py`): DeepSpeed, dotted names."""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, names, number, text
from memlint.facts import Fact, default, fixed
from memlint.typed import Any

NAME = "openrlhf"
NOTE = "OpenRLHF 3c3be623 default"

_OBJECTIVES = {"train_sft": "causal_lm", "train_dpo": "dpo", "train_rm": "reward"}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of the flags. A launch adds the module's last name as `openrlhf_command` (`train_sft`)."""

    def flag(name: str, otherwise: Any, convert: Any) -> Fact:
        fact = given(native, name)
        return derive(convert, fact) if fact is not None else default(otherwise, NOTE)

    command = given(native, "openrlhf_command") or default("train_sft", NOTE)
    held = flag("ds.param_dtype", "bfloat16", _DTYPES.__getitem__)
    stage = flag("ds.zero_stage", 2, integer)
    rank = flag("ds.lora.rank", 0, integer)
    result: Facts = {
        "framework.name": fixed(NAME),
        "objective": derive(_OBJECTIVES.__getitem__, command),
        "batch.micro_batch_size": flag("train.micro_batch_size", 8, integer),
        "batch.sequence_length": flag("data.max_len", 2048, integer),
        "batch.packing": flag("ds.packing_samples", False, boolean),
        "checkpointing.enabled": flag("model.gradient_checkpointing_enable", False, boolean),
        "checkpointing.use_reentrant": flag("model.gradient_checkpointing_reentrant", False, boolean),
        "model.dtype": held,
        "precision": derive(lambda name: "bf16-mixed" if name == "bfloat16" else "fp16-mixed", held),
        "parallel.strategy": derive(lambda number_: f"zero{number_}" if number_ else "ddp", stage),
        "parallel.offload_optimizer": flag("ds.adam_offload", "none", lambda on: "cpu" if boolean(on) else "none"),
        "parallel.offload_params": default("none", NOTE),
        "parallel.tensor": flag("ds.tensor_parallel_size", 1, integer),
        "parallel.context": flag("ds.ring_attn_size", 1, integer),
        "parallel.overlap_comm": flag("ds.overlap_comm", False, boolean),
        "quantization.method": flag("ds.load_in_4bit", "none", lambda on: "bnb_4bit" if boolean(on) else "none"),
        "adapter.method": derive(lambda size: "lora" if size else "none", rank),
        "reference_model": derive(lambda name: "copy" if name == "train_dpo" else "none", command),
        "loss.logits": flag("ds.use_liger_kernel", "full", lambda on: "fused" if boolean(on) else "full"),
    }
    model = given(native, "model.model_name_or_path")
    if model is not None:
        result["model.id"] = derive(text, model)
    if result["adapter.method"].value == "lora":
        result |= {
            "adapter.r": rank,
            "adapter.alpha": flag("ds.lora.alpha", 16, number),
            "adapter.dropout": flag("ds.lora.dropout", 0, number),
            "adapter.target_modules": flag("ds.lora.target_modules", "all-linear", names),
        }
    return result


_WRITE = {
    "batch.micro_batch_size": "train.micro_batch_size", "batch.sequence_length": "data.max_len",
    "checkpointing.enabled": "model.gradient_checkpointing_enable", "batch.packing": "ds.packing_samples",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> flag; None where OpenRLHF cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "parallel.strategy" and str(value).startswith("zero"):
        return [("ds.zero_stage", int(str(value)[-1]))]
    if key == "loss.logits" and value in ("fused", "full"):
        return [("ds.use_liger_kernel", value == "fused")]
    if key == "parallel.offload_optimizer" and value in ("cpu", "none"):
        return [("ds.adam_offload", value == "cpu")]
    return None
