"""Ludwig YAML that fine-tunes a language model (`model_type: llm`).

Read at ludwig 5d19f3e63: `schema/{trainer,optimizers,llms/*}.py`, `utils/llm_utils.py`, `trainers/trainer{,_dpo}.py`,
`models/llm.py`. A base that is not quantized is loaded in float32; mixed precision is torch's own (float16). DPO and its like keep no
reference model.
"""

from __future__ import annotations

from memlint.dialects.bitsandbytes import dtype
from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, names, number, rename, soften, text
from memlint.facts import Fact, Problem, default, fixed, unknown
from memlint.facts.keys import normalise
from memlint.read.document import Document
from memlint.typed import Any

NAME = "ludwig"
FRAGMENT = False
INTERPOLATES = False
NOTE = "ludwig 5d19f3e63 default"

_TRAINS = {"finetune": "causal_lm", "dpo": "dpo", "kto": "kto", "orpo": "orpo", "grpo": "grpo"}
_OPTIMIZERS = {
    "adam": "adam", "adamw": "adamw_torch", "sgd": "sgd", "adagrad": "adagrad", "rmsprop": "rmsprop", "adafactor": "adafactor",
    "adam_8bit": "adamw_bnb_8bit", "adamw_8bit": "adamw_bnb_8bit", "paged_adam": "paged_adamw_32bit",
    "paged_adamw": "paged_adamw_32bit", "paged_adam_8bit": "paged_adamw_8bit", "paged_adamw_8bit": "paged_adamw_8bit",
    "lion": "lion_32bit", "lion_8bit": "lion_8bit", "paged_lion": "paged_lion_32bit", "paged_lion_8bit": "paged_lion_8bit",
}  # fmt: skip


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
        "batch.gradient_accumulation_steps": setting("trainer.gradient_accumulation_steps", 1, integer),
        "batch.packing": setting("trainer.packing", False, boolean),
        "checkpointing.enabled": setting("trainer.enable_gradient_checkpointing", False, boolean),
        "checkpointing.use_reentrant": default(True, NOTE),
        "compile": setting("trainer.compile", False, boolean),
        "precision": setting("trainer.use_mixed_precision", "fp32", lambda on: "fp16-mixed" if boolean(on) else "fp32"),
        "optimizer.name": setting("trainer.optimizer.type", "adam", lambda name: _OPTIMIZERS.get(text(name).lower(), name)),
        "eval.enabled": setting("trainer.skip_all_evaluation", True, lambda off: not boolean(off)),
        "reference_model": default("none", NOTE),
        "batch.sequence_length": unknown("preprocessing.global_max_sequence_length is not set: the model's context length"),
    }
    if result["eval.enabled"].value is not False:
        result["eval.batch_size"] = setting("trainer.eval_batch_size", 2, integer)
    result |= rename(native, {
        "model.id": ("base_model", text),
        "objective": ("trainer.type", _TRAINS.__getitem__),
        "batch.sequence_length": ("preprocessing.global_max_sequence_length", integer),
        "batch.num_generations": ("trainer.grpo_num_generations", integer),
    })  # fmt: skip
    result |= _adapter(native, setting) | _quantization(native, setting)
    if context is not None:
        context.note(_problems(native))
    return result


def _adapter(native: Native, setting: Any) -> Facts:
    kind = given(native, "adapter.type")
    if kind is None:
        return {"adapter.method": default("none", NOTE)}
    dora = given(native, "adapter.use_dora") or default(False, NOTE)
    method = derive(
        lambda name, on: "dora" if name == "lora" and boolean(on) else normalise("adapter.method", text(name)), kind, dora
    )
    result: Facts = {"adapter.method": method}
    if method.value in ("lora", "dora"):
        rank, alpha = setting("adapter.r", 8, integer), given(native, "adapter.alpha")
        modules = given(native, "adapter.target_modules")
        result |= {
            "adapter.r": rank,
            "adapter.alpha": derive(number, alpha) if alpha else soften(derive(lambda r: 2 * r, rank), NOTE),
            "adapter.dropout": setting("adapter.dropout", 0.05, number),
            "adapter.dtype": default("float32", "peft 0.21.2: autocast_adapter_dtype"),
            "adapter.target_modules": derive(names, modules)
            if modules is not None
            else unknown("target_modules is not given: PEFT picks them by the model's type"),
        }
    return result


def _quantization(native: Native, setting: Any) -> Facts:
    """bitsandbytes loads quantized, with eager attention; torchao quantizes afterwards a model that was loaded in float32."""
    block = given(native, "quantization", "quantization.bits", "quantization.backend")
    backend = given(native, "quantization.backend") or default("bitsandbytes", NOTE)
    if block is None or not block.value:
        return {"quantization.method": default("none", NOTE), "model.dtype": default("float32", NOTE)}
    if backend.value == "torchao":
        mode = given(native, "quantization.mode") or unknown("quantization.mode is not given")
        stored = {"int4_weight_only": "int4", "int8_weight_only": "int8", "int8_dynamic": "int8", "float8": "fp8"}
        return {"quantization.method": derive(stored.__getitem__, mode), "model.dtype": default("float32", NOTE)}
    bits, compute = given(native, "quantization.bits"), setting("quantization.bnb_4bit_compute_dtype", "float16", dtype)
    result: Facts = {
        "quantization.method": derive(lambda size: f"bnb_{integer(size)}bit", bits) if bits else default("bnb_4bit", NOTE),
        "model.dtype": soften(compute, f"{NOTE}: loaded in the compute dtype"),
        "model.attention": default("eager", NOTE),
    }
    if result["quantization.method"].value == "bnb_4bit":
        result |= {
            "quantization.double_quant": setting("quantization.bnb_4bit_use_double_quant", True, boolean),
            "quantization.quant_type": setting("quantization.bnb_4bit_quant_type", "nf4", text),
            "quantization.compute_dtype": compute,
        }
    return result


def _problems(native: Native) -> tuple[Problem, ...]:
    """What the schema refuses (`config_validation/checks.py`): quantized weights are trained with LoRA only."""
    bits = given(native, "quantization.bits")
    adapter = given(native, "adapter.type")
    if bits is None or (adapter is not None and adapter.value == "lora") or not bits.origin or bits.origin[0].span is None:
        return ()
    message = "quantization needs adapter.type: lora; Ludwig refuses everything else"
    return (Problem("four-bit-without-adapter", message, bits.origin[0].span),)


_WRITE = {
    "batch.micro_batch_size": "trainer.batch_size", "batch.gradient_accumulation_steps": "trainer.gradient_accumulation_steps",
    "batch.sequence_length": "preprocessing.global_max_sequence_length", "batch.packing": "trainer.packing",
    "adapter.r": "adapter.r", "adapter.alpha": "adapter.alpha", "adapter.dropout": "adapter.dropout",
    "adapter.target_modules": "adapter.target_modules", "checkpointing.enabled": "trainer.enable_gradient_checkpointing",
    "compile": "trainer.compile", "eval.batch_size": "trainer.eval_batch_size",
    "quantization.double_quant": "quantization.bnb_4bit_use_double_quant",
    "quantization.quant_type": "quantization.bnb_4bit_quant_type",
    "quantization.compute_dtype": "quantization.bnb_4bit_compute_dtype",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where Ludwig cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "precision" and value in ("fp16-mixed", "fp32"):
        return [("trainer.use_mixed_precision", value == "fp16-mixed")]
    if key == "optimizer.name":
        name = next((own for own, canonical in reversed(_OPTIMIZERS.items()) if canonical == value), None)
        return [("trainer.optimizer.type", name)] if name else None
    if key == "quantization.method" and value in ("bnb_4bit", "bnb_8bit"):
        return [("quantization.bits", 4 if value == "bnb_4bit" else 8)]
    if key == "eval.enabled":
        return [("trainer.skip_all_evaluation", not value)]
    return None
