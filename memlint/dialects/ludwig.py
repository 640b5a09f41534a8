"""Ludwig YAML that fine-tunes a language model (`model_type: llm`). Read at ludwig 5d19f3e63: `schema/{trainer,llms/*}.py`.

Only what the file states and the plain schema defaults; how Ludwig picks dtypes and pads batches is not modelled.
"""

from __future__ import annotations

from memlint.dialects.bitsandbytes import dtype
from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, names, number, rename, soften, text
from memlint.facts import Fact, default, fixed
from memlint.read.document import Document
from memlint.typed import Any

NAME = "ludwig"
FRAGMENT = False
INTERPOLATES = False
NOTE = "ludwig 5d19f3e63 default"

_TRAINS = {"finetune": "causal_lm", "dpo": "dpo", "kto": "kto", "orpo": "orpo", "grpo": "grpo"}


def recognise(document: Document) -> str | None:
    """`model_type: llm` with features and a trainer that trains."""
    if document.text_at("model_type") != "llm" or "base_model" not in document.keys:
        return None
    kind = document.text_at("trainer.type") or "none"
    return f"model_type is llm, trainer.type is {kind}" if kind in _TRAINS else None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a Ludwig configuration."""

    def setting(name: str, otherwise: Any, convert: Any) -> Fact:
        fact = given(native, name)
        fact = None if fact is not None and fact.value == "auto" else fact
        return derive(convert, fact) if fact is not None else default(otherwise, NOTE)

    result: Facts = {
        "framework.name": fixed(NAME),
        "batch.micro_batch_size": setting("trainer.batch_size", 1, integer),
        "checkpointing.enabled": setting("trainer.enable_gradient_checkpointing", False, boolean),
        "quantization.method": default("none", NOTE),
        "adapter.method": default("none", NOTE),
    }
    result |= rename(native, {
        "model.id": ("base_model", text),
        "objective": ("trainer.type", _TRAINS.__getitem__),
        "batch.gradient_accumulation_steps": ("trainer.gradient_accumulation_steps", integer),
        "batch.sequence_length": ("preprocessing.global_max_sequence_length", integer),
        "batch.num_generations": ("trainer.grpo_num_generations", integer),
    })  # fmt: skip
    adapter = given(native, "adapter.type")
    if adapter is not None:
        result["adapter.method"] = derive(lambda name: text(name), adapter)
    if result["adapter.method"].value == "lora":
        rank = setting("adapter.r", 8, integer)
        alpha = given(native, "adapter.alpha")
        result |= {
            "adapter.r": rank,
            "adapter.alpha": derive(number, alpha) if alpha else soften(derive(lambda r: 2 * r, rank), NOTE),
            "adapter.dropout": setting("adapter.dropout", 0.05, number),
        }
        modules = given(native, "adapter.target_modules")
        if modules is not None:
            result["adapter.target_modules"] = derive(names, modules)
    bits = given(native, "quantization.bits")
    if bits is not None:
        result["quantization.method"] = derive(lambda width: f"bnb_{integer(width)}bit", bits)
        result["quantization.double_quant"] = setting("quantization.bnb_4bit_use_double_quant", True, boolean)
        result["quantization.quant_type"] = setting("quantization.bnb_4bit_quant_type", "nf4", text)
        result["quantization.compute_dtype"] = setting("quantization.bnb_4bit_compute_dtype", "float16", dtype)
    return result


_WRITE = {
    "batch.micro_batch_size": "trainer.batch_size", "batch.gradient_accumulation_steps": "trainer.gradient_accumulation_steps",
    "batch.sequence_length": "preprocessing.global_max_sequence_length", "adapter.r": "adapter.r",
    "adapter.alpha": "adapter.alpha",
    "checkpointing.enabled": "trainer.enable_gradient_checkpointing",
    "quantization.double_quant": "quantization.bnb_4bit_use_double_quant",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where Ludwig cannot say it."""
    return [(_WRITE[key], value)] if key in _WRITE else None
