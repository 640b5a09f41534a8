"""open-instruct YAML and flags (`finetune.py`, `dpo_tune_cache.py`): its own accelerate loop, not the HF Trainer.

Read at open-instruct e6c3044aa6. Weights are loaded in bfloat16; precision, sharding and the number of GPUs come from the
launcher.
"""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number, text
from memlint.facts import Fact, default, fixed
from memlint.read.document import Document
from memlint.typed import Any

NAME = "open_instruct"
FRAGMENT = False
INTERPOLATES = False
NOTE = "open-instruct e6c3044aa6 default"

_OWN = frozenset({
    "with_tracking", "dataset_mixer", "dataset_mixer_list", "use_slow_tokenizer", "checkpointing_steps", "add_bos",
    "dataset_mix_dir", "keep_last_n_checkpoints", "use_lora", "use_qlora", "train_file", "max_train_samples",
})  # fmt: skip
_OTHERS = frozenset({"dataset_mixture", "eval_strategy", "finetuning_type", "stage", "base_model", "use_peft", "bf16"})
_TARGETS = ["q_proj", "o_proj", "v_proj", "k_proj", "gate_proj", "up_proj", "down_proj"]


def recognise(document: Document) -> str | None:
    """`model_name_or_path` and a batch size with open-instruct's own keys, and no key of the HF Trainer's relatives."""
    keys = document.keys
    own = sorted(keys & _OWN)
    if "model_name_or_path" not in keys or "per_device_train_batch_size" not in keys or keys & _OTHERS:
        return None
    if len(own) >= 2 or (own and "num_epochs" in keys):
        return f"has model_name_or_path and {own[0]}"
    return None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a configuration or of the flags over it."""

    def setting(name: str, otherwise: Any, convert: Any) -> Fact:
        fact = given(native, name)
        return derive(convert, fact) if fact is not None else default(otherwise, NOTE)

    result: Facts = {
        "framework.name": fixed(NAME),
        "batch.micro_batch_size": setting("per_device_train_batch_size", 8, integer),
        "batch.gradient_accumulation_steps": setting("gradient_accumulation_steps", 1, integer),
        "batch.packing": setting("packing", False, boolean),
        "checkpointing.enabled": setting("gradient_checkpointing", False, boolean),
        "model.dtype": default("bfloat16", NOTE),
        "model.attention": setting(
            "use_flash_attn", "flash_attention_2", lambda on: "flash_attention_2" if boolean(on) else "sdpa"
        ),
    }
    model, length = given(native, "model_name_or_path"), given(native, "max_seq_length")
    if model is not None:
        result["model.id"] = derive(text, model)
    if length is not None:
        result["batch.sequence_length"] = derive(integer, length)
    off = default(False, NOTE)
    lora, qlora = given(native, "use_lora") or off, given(native, "use_qlora") or off
    result["adapter.method"] = derive(lambda a, b: "lora" if boolean(a) or boolean(b) else "none", lora, qlora)
    result["quantization.method"] = derive(lambda on: "bnb_4bit" if boolean(on) else "none", qlora)
    if result["quantization.method"].value == "bnb_4bit":
        for key, value in (
            ("quant_type", "nf4"),
            ("double_quant", True),
            ("compute_dtype", "bfloat16"),
            ("storage_dtype", "uint8"),
        ):
            result[f"quantization.{key}"] = default(value, NOTE)
    if result["adapter.method"].value == "lora":
        result |= {
            "adapter.r": setting("lora_rank", 64, integer),
            "adapter.alpha": setting("lora_alpha", 16, number),
            "adapter.dropout": setting("lora_dropout", 0.1, number),
            "adapter.target_modules": default(_TARGETS, NOTE),
        }
    result["optimizer.name"] = _optimizer(native, result["quantization.method"])
    return result | _objective(native)


def _optimizer(native: Native, quantized: Fact) -> Fact:
    """Fused AdamW; bitsandbytes' paged one for a quantized base (`finetune.py`)."""
    eight, fused = (
        given(native, "use_8bit_optimizer") or default(False, NOTE),
        given(native, "fused_optimizer") or default(True, NOTE),
    )

    def name(method: Any, small: Any, kernel: Any) -> str:
        if method == "bnb_4bit":
            return "paged_adamw_8bit" if boolean(small) else "paged_adamw_32bit"
        return "adamw_torch_fused" if boolean(kernel) else "adamw_torch"

    return derive(name, quantized, eight, fused)


def _objective(native: Native) -> Facts:
    """The script decides; keys of `dpo_tune_cache.py` give it away (its reference log-probabilities are cached beforehand)."""
    sign = given(native, "beta", "loss_type", "dpo_loss_type", "dpo_beta")
    if sign is None and given(native, "num_epochs") is None:
        return {"objective": default("causal_lm", "no key of dpo_tune_cache.py"), "reference_model": default("none", NOTE)}
    return {"objective": default("dpo", "keys of dpo_tune_cache.py"), "reference_model": default("precomputed", NOTE)}


_WRITE = {
    "batch.micro_batch_size": "per_device_train_batch_size", "batch.gradient_accumulation_steps": "gradient_accumulation_steps",
    "batch.sequence_length": "max_seq_length", "batch.packing": "packing", "checkpointing.enabled": "gradient_checkpointing",
    "adapter.r": "lora_rank", "adapter.alpha": "lora_alpha", "adapter.dropout": "lora_dropout",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where open-instruct cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "adapter.method" and value in ("lora", "none"):
        return [("use_lora", value == "lora")]
    return [("use_qlora", True), ("use_lora", True)] if (key, value) == ("quantization.method", "bnb_4bit") else None
