"""YAML of HF-style training scripts: TRL's own scripts, alignment-handbook recipes and `HfArgumentParser` files.

The keys are the fields of TRL's configuration and `ModelConfig` (alignment-handbook 925acdfe4b). Which trainer reads them is
not in the file: keys that only one trainer has give it away, supervised fine-tuning is assumed otherwise. With a launch line
the reader of the script decides and calls `facts` with the right class.
"""

from __future__ import annotations

import re

from memlint.dialects import hf_arguments, trl
from memlint.dialects.context import Context
from memlint.dialects.deepspeed import linked
from memlint.dialects.derive import Facts, Native, companions, derive, given
from memlint.dialects.from_pretrained import load_facts
from memlint.dialects.fsdp import with_linked
from memlint.facts import Fact, Status, fixed, unknown
from memlint.read.document import Document
from memlint.typed import Any

NAME = "trl_yaml"
FRAGMENT = False
INTERPOLATES = False

_MARKS = frozenset({"per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "num_train_epochs",
                    "num_epochs", "output_dir", "bf16", "gradient_checkpointing", "max_seq_length", "max_length",
                    "dataset_name"})  # fmt: skip
_FOREIGN = frozenset({"finetuning_type", "stage", "cutoff_len", "template", "base_model"})
_TRL_ONLY = frozenset({"dataset_mixture", "dataset_name", "max_length", "max_seq_length", "packing", "beta", "use_peft", "lora_r",
                       "chat_template", "dataset_mixer", "num_generations", "loss_type", "dataset_num_proc", "model_init_kwargs",
                       "reward_funcs", "max_completion_length", "max_prompt_length", "dataset_text_field"})  # fmt: skip


_ADAPTER_WORDS = re.compile(r"lora|peft|train_mode|finetun", re.IGNORECASE)
_TRL_ADAPTER = frozenset({"use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_parameters",
                          "lora_modules_to_save", "lora_task_type", "use_rslora", "use_dora"})  # fmt: skip
"""TRL's own words for an adapter (`ModelConfig`, TRL 1.16)."""


def recognise(document: Document) -> str | None:
    """`model_name_or_path` with training arguments, and nothing of LLaMA-Factory."""
    keys = document.keys
    marks = sorted(keys & _MARKS)
    if "model_name_or_path" not in keys or len(marks) < 2 or keys & _FOREIGN:
        return None
    trains = {"per_device_train_batch_size", "gradient_checkpointing", "bf16", "gradient_accumulation_steps", "dataset_name"}
    if not keys & trains:
        return None
    return f"has model_name_or_path and {marks[0]}"


def facts(native: Native, context: Context | None = None, class_name: str | None = None) -> Facts:
    """Canonical facts; `class_name` is the configuration class that reads the file, when that is known.

    A launch of `trl sft` and its like adds the class as `trl_command`.
    """
    context = context or Context()
    native = with_linked(native, context)
    command = given(native, "trl_command")
    if class_name is None and command is not None:
        class_name = str(command.value)
    versions = context.versions
    names = {name.partition(".")[0] for name in native}
    if class_name is None and not names & _TRL_ONLY:
        result = hf_arguments.training_arguments(native, versions) | load_facts("AutoModel", _loading(native), versions)
        result["framework.name"] = fixed("transformers")
    else:
        chosen = class_name or config_class(names)
        result = trl.trl_arguments(chosen, native, versions) | trl.model_config(native, versions)
        result["framework.name"] = fixed("trl")
        result["reference_model"] = trl.reference_model(chosen, native, result.get("adapter.method"), versions)
        reward = given(native, "reward_model_name_or_path")
        if reward is not None:
            result["model.companions"] = derive(companions, reward)
    foreign = sorted(name for name in names - _TRL_ADAPTER if _ADAPTER_WORDS.search(name))
    if class_name is None and foreign:
        # A script of the user's own reads this file (`parse_json_file`) and makes the adapter of its own arguments.
        reason = f"{foreign[0]} is no argument of {result['framework.name'].value}: the script that reads this file decides"
        # What the file says in TRL's own words (`load_in_4bit`, `use_peft`) stays; a default of TRL's says nothing about that script.
        keys = ("adapter.method", "quantization.method")
        result |= {key: unknown(reason) for key in keys if key not in result or result[key].status is Status.DEFAULT}
    result |= linked(given(native, "deepspeed"), result, context)
    context.note(hf_arguments.problems(native))
    return result


def config_class(names: set[str]) -> str:
    """The TRL configuration class that keys give away; `SFTConfig` when none does."""
    if names & {"num_generations", "reward_funcs", "max_completion_length"}:
        return "GRPOConfig"
    if "desirable_weight" in names:
        return "KTOConfig"
    if names & {"beta", "max_prompt_length", "rpo_alpha", "precompute_ref_log_probs", "ref_model_mixup_alpha", "sync_ref_model"}:
        return "DPOConfig"
    return "SFTConfig"


def _loading(native: Native) -> dict[str, Fact]:
    return {
        name: fact
        for name, fact in native.items()
        if name in ("model_name_or_path", "torch_dtype", "dtype", "attn_implementation")
    }


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> key; None where the file cannot say it."""
    if key == "model.dtype":
        return [("dtype", value)]
    if key == "quantization.storage_dtype":
        return [("bnb_4bit_quant_storage", value)]
    if key == "model.attention":
        return [("attn_implementation", value)]
    if key == "quantization.double_quant":
        return [("use_bnb_nested_quant", value)]
    if key == "quantization.method" and value in ("bnb_4bit", "bnb_8bit"):
        return [("load_in_4bit", value == "bnb_4bit"), ("load_in_8bit", value == "bnb_8bit")]
    if key == "adapter.method" and value == "lora":
        return [("use_peft", True)]
    adapters = {"adapter.r": "lora_r", "adapter.alpha": "lora_alpha", "adapter.dropout": "lora_dropout",
                "adapter.target_modules": "lora_target_modules"}  # fmt: skip
    return [(adapters[key], value)] if key in adapters else trl.write(key, value)


def alternatives(key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """`torch_dtype` before TRL 0.23, and what the configuration class has."""
    return [[("torch_dtype", value)]] if key == "model.dtype" else trl.alternatives(key, value)
