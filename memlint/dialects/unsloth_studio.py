"""Unsloth Studio YAML or JSON (`unsloth train --config`), and Studio's defaults for a model.

Read at unsloth 015bdef0d9: `unsloth_cli/{config,commands/train}.py`, `studio/backend/core/training/trainer.py`. The trainer is TRL's
SFTTrainer on a model loaded by `FastLanguageModel`; a full fine-tuning is never quantized.
"""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, names, number, rename, text
from memlint.facts import Fact, Problem, choices, default, fixed
from memlint.read.document import Document
from memlint.typed import Any

NAME = "unsloth_studio"
FRAGMENT = False
INTERPOLATES = False
NOTE = "Unsloth Studio 015bdef0d9 default"

_LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_OWN = frozenset(
    {"max_seq_length", "load_in_4bit", "gradient_checkpointing", "batch_size", "training_type", "gradient_accumulation_steps"}
)

SECTIONS = {
    "training": _OWN | {"packing", "output_dir", "num_epochs", "learning_rate", "max_steps", "optim"},
    "lora": frozenset({"lora_r", "lora_alpha", "lora_dropout", "target_modules", "vision_all_linear", "use_rslora", "use_loftq",
                       "use_dora"}),
    "data": frozenset({"dataset", "local_dataset", "format_type"}),
}  # fmt: skip
"""Section -> its fields, as the command line names them."""


def recognise(document: Document) -> str | None:
    """`training` with Studio's keys beside `lora` or `data` of its own."""
    training = document.at("training")
    own = sorted(name for name in _OWN if document.at(f"training.{name}") is not None)
    if training is None or len(own) < 2 or "max_seq_length" not in own:
        return None
    if document.at("lora.lora_r") is None and document.at("training.training_type") is None:
        return None
    return (
        f"has training.max_seq_length and {'lora.lora_r' if document.at('lora.lora_r') is not None else 'training.training_type'}"
    )


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a Studio configuration."""
    context = context or Context()

    def setting(name: str, otherwise: Any, convert: Any) -> Fact:
        fact = given(native, name)
        return derive(convert, fact) if fact is not None else default(otherwise, NOTE)

    full = setting("training.training_type", "lora", lambda kind: text(kind).lower()).value == "full"
    half = choices(("bfloat16", "float16"), note=f"{NOTE}: what the card supports", decided_by="gpu.bf16")
    result: Facts = {
        "framework.name": fixed("unsloth"),
        "objective": default("causal_lm", NOTE),
        "batch.micro_batch_size": setting("training.batch_size", 2, integer),
        "batch.gradient_accumulation_steps": setting("training.gradient_accumulation_steps", 4, integer),
        "batch.sequence_length": setting("training.max_seq_length", 2048, integer),
        "batch.packing": setting("training.packing", False, boolean),
        "optimizer.name": _optimizer(native),
        "checkpointing.enabled": setting("training.gradient_checkpointing", True, lambda mode: _mode(mode) is not False),
        "checkpointing.offload": setting("training.gradient_checkpointing", True, lambda mode: _mode(mode) == "unsloth"),
        "model.dtype": half,
        "precision": choices(("bf16-mixed", "fp16-mixed"), note=f"{NOTE}: what the card supports", decided_by="gpu.bf16"),
        "quantization.method": _quantized(native, full),
        "eval.enabled": setting("training.eval_steps", False, lambda steps: number(steps) > 0),
        "reference_model": default("none", NOTE),
    }
    result |= rename(native, {"model.id": ("model", text)})
    if result["quantization.method"].value == "bnb_4bit":
        result |= {"quantization.quant_type": default("nf4", NOTE), "quantization.double_quant": default(True, NOTE),
                   "quantization.compute_dtype": half}  # fmt: skip
    result |= _adapter(native, full, setting)
    asked = given(native, "training.load_in_4bit")
    if full and asked is not None and asked.value is True and asked.origin and asked.origin[0].span is not None:
        message = "load_in_4bit has no effect with training_type: full"
        context.note((Problem("four-bit-without-effect", message, asked.origin[0].span),))
    return result


def _optimizer(native: Native) -> Fact:
    """Only Studio's own defaults for a model have `optim`: the command line's configuration (with `model`) has no such field."""
    asked = given(native, "training.optim")
    return derive(text, asked) if asked is not None and "model" not in native else default("adamw_8bit", NOTE)


def _mode(value: Any) -> bool | str:
    """`trainer.py`: a word it does not know means "unsloth"."""
    word = str(value).strip().lower()
    if word in ("true", "1", "yes"):
        return True
    return False if word in ("false", "0", "no", "none", "off") else "unsloth"


def _quantized(native: Native, full: bool) -> Fact:
    asked = given(native, "training.load_in_4bit")
    if full:
        kind = given(native, "training.training_type")
        return kind.with_value("none") if kind is not None else default("none", NOTE)
    return derive(lambda on: "bnb_4bit" if boolean(on) else "none", asked) if asked is not None else default("bnb_4bit", NOTE)


def _adapter(native: Native, full: bool, setting: Any) -> Facts:
    if full:
        kind = given(native, "training.training_type")
        return {"adapter.method": kind.with_value("none") if kind is not None else default("none", NOTE)}
    everything = given(native, "lora.vision_all_linear")
    modules = given(native, "lora.target_modules")
    targets = derive(_modules, modules) if modules is not None else default(_LINEARS, NOTE)
    if everything is not None and everything.value is True:
        targets = everything.with_value("all-linear")
    dora = given(native, "lora.use_dora")
    return {
        "adapter.method": derive(lambda on: "dora" if boolean(on) else "lora", dora)
        if dora is not None
        else default("lora", NOTE),
        "adapter.r": setting("lora.lora_r", 64, integer),
        "adapter.alpha": setting("lora.lora_alpha", 16, number),
        "adapter.dropout": setting("lora.lora_dropout", 0.0, number),
        "adapter.target_modules": targets,
    }


def _modules(value: Any) -> Any:
    """A list, or names with commas between them; nothing means all the usual linears."""
    listed = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else list(value)
    return "all-linear" if listed == ["all-linear"] else names(listed or _LINEARS)


_WRITE = {
    "batch.micro_batch_size": "training.batch_size", "batch.gradient_accumulation_steps": "training.gradient_accumulation_steps",
    "batch.sequence_length": "training.max_seq_length", "batch.packing": "training.packing", "adapter.r": "lora.lora_r",
    "adapter.alpha": "lora.lora_alpha", "adapter.dropout": "lora.lora_dropout",
    "adapter.target_modules": "lora.target_modules", "optimizer.name": "training.optim",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where Studio cannot say it. `gradient_checkpointing` is a word, not a switch."""
    if key == "adapter.target_modules" and isinstance(value, list):
        return [(_WRITE[key], ",".join(value))]
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "checkpointing.enabled":
        return [("training.gradient_checkpointing", "unsloth" if value else "none")]
    if key == "checkpointing.offload":
        return [("training.gradient_checkpointing", "unsloth" if value else "true")]
    if key == "quantization.method" and value in ("bnb_4bit", "none"):
        return [("training.load_in_4bit", value == "bnb_4bit")]
    return None
