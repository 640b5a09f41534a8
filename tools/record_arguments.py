"""Records what the installed transformers, trl, peft and accelerate make of training arguments, as an oracle for the tests.

    python tools/record_arguments.py > tests/dialects/recorded/transformers-5.24.0_trl-1.16.0.json

Imports and constructs the real configuration classes on a CPU; run it in an environment of its own, once a version pair.
`tests/dialects/test_recorded.py` compares memlint's facts with every file there.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import tempfile
import warnings
from typing import Any

ATTRIBUTES = [
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "bf16", "fp16",
    "gradient_checkpointing", "optim", "eval_strategy", "evaluation_strategy", "auto_find_batch_size", "use_liger_kernel",
    "torch_compile", "max_length", "max_seq_length", "packing", "max_completion_length", "num_generations", "beta", "use_vllm",
]  # fmt: skip

KEYWORDS: list[dict[str, Any]] = [
    {},
    {"bf16": True},
    {"bf16": False},
    {"fp16": True},
    {"fp16": True, "bf16": True},
    {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 7, "per_device_eval_batch_size": 5},
    {"gradient_checkpointing": True},
    {"gradient_checkpointing": False},
    {"optim": "adamw_bnb_8bit"},
    {"eval_strategy": "steps", "eval_steps": 10},
    {"evaluation_strategy": "epoch"},
    {"auto_find_batch_size": True},
    {"use_liger_kernel": True},
    {"torch_compile": True},
    {"max_length": 4096},
    {"max_seq_length": 4096},
    {"packing": True},
    {"max_completion_length": 100, "num_generations": 4},
    {"beta": 0.2},
]

CLASSES = {
    "transformers": ["TrainingArguments", "Seq2SeqTrainingArguments"],
    "trl": ["SFTConfig", "DPOConfig", "KTOConfig", "ORPOConfig", "CPOConfig", "RewardConfig", "GRPOConfig", "RLOOConfig"],
}


def plain(value: Any) -> Any:
    """A value as JSON can hold it; an enum as its value."""
    value = getattr(value, "value", value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def record(library: str, name: str, keywords: dict[str, Any]) -> dict[str, Any] | None:
    """One construction: its attributes, or the error it raises; None when the version has no such class."""
    cls = getattr(importlib.import_module(library), name, None)
    if cls is None:
        return None
    entry: dict[str, Any] = {"library": library, "class": name, "arguments": keywords}
    try:
        built = cls(output_dir=tempfile.gettempdir(), use_cpu=True, report_to=[], **keywords)
    except TypeError as error:
        return {**entry, "error": f"TypeError: {str(error)[:80]}"}
    except (ValueError, ImportError, NotImplementedError, RuntimeError) as error:
        return {**entry, "error": f"{type(error).__name__}: {str(error)[:80]}"}
    return {**entry, "attributes": {key: plain(getattr(built, key)) for key in ATTRIBUTES if hasattr(built, key)}}


def main() -> None:
    """Record every class with every set of keywords."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    libraries = ("transformers", "trl", "peft", "accelerate", "torch")
    entries = [record(library, name, keywords) for library in CLASSES for name in CLASSES[library] for keywords in KEYWORDS]
    versions = {}
    for library in libraries:
        try:
            versions[library] = importlib.metadata.version(library).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    lines = ",\n".join("  " + json.dumps(entry, sort_keys=True) for entry in entries if entry is not None)
    sys.stdout.write(f'{{"versions": {json.dumps(versions)},\n "entries": [\n{lines}\n ]}}\n')


if __name__ == "__main__":
    main()
