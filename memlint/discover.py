"""Which files of a directory may describe a training run: by name, by size, and by a search of their bytes before any parsing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from memlint.paths import posix
from memlint.source import MAX_BYTES, Kind, kind_of

SKIPPED = frozenset(
    {
        "node_modules", "__pycache__", "venv", "env", "virtualenv", "site-packages", "build", "dist", "wandb", "mlruns",
        "lightning_logs", "checkpoints",
    }
)  # fmt: skip
"""Directories that hold no sources; those whose name starts with a dot are skipped too, but for `.github`."""
MAX_FILES = 100_000
MAX_DEPTH = 40

_FRAMEWORKS = rb"torch|transformers|\btrl\b|lightning|accelerate|deepspeed|unsloth|diffusers|sentence_transformers|swift|axolotl"
_NEEDLES = {
    Kind.PYTHON: _FRAMEWORKS,
    Kind.NOTEBOOK: _FRAMEWORKS,
    Kind.SHELL: rb"\bpython|torchrun|accelerate|deepspeed|swift|megatron|llamafactory|axolotl|\btune\b|litgpt|\btrl\b|unsloth|\bbash\b",
    Kind.YAML: rb"memlint\.run|batch_size|base_model|model_name_or_path|_component_|checkpoint_dir|actor_rollout_ref"
    rb"|distributed_type|finetuning_type|tuner_type|train_type|cutoff_len|dist_config|zero_optimization|torchrun"
    rb"|accelerate launch|llamafactory-cli|swift sft|deepspeed |python[^\n]*train|MegatronStrategy|seed_everything|class_path"
    rb"|max_seq_length|train_iters|MODEL_ARGS|ppo_\w*trainer",
    Kind.JSON: rb"\"configurations\"|memlint\.run|batch_size|model_name_or_path|zero_optimization|finetuning_type"
    rb"|distributed_type|max_seq_length|steps_per_print",
    Kind.TOML: rb"seq_len|pretrained_model_name_or_path",
}
"""What a file must contain to be worth reading: every dialect, framework and launcher has one of these words."""


def discover(folder: str) -> list[str]:
    """The files below a directory that may hold a training run, in posix order; links to directories are not followed."""
    found = [path for path in _walk(folder) if may_train(path)]
    return sorted(found, key=posix)


def _walk(folder: str) -> Iterator[str]:
    count = 0
    top = folder.rstrip(os.sep).count(os.sep)
    for directory, names, files in os.walk(folder):
        if directory.count(os.sep) - top > MAX_DEPTH:
            names.clear()
            continue
        names[:] = sorted(name for name in names if name == ".github" or not (name.startswith(".") or name in SKIPPED))
        if "pyvenv.cfg" in files:
            names.clear()
            continue
        for name in sorted(files):
            if kind_of(name) is not None and not name.startswith("."):
                count += 1
                if count > MAX_FILES:
                    return
                yield os.path.normpath(os.path.join(directory, name))


def may_train(path: str) -> bool:
    """Whether the bytes of a file hold a word that every description of a run has; False for what cannot be read."""
    kind = kind_of(path)
    needle = _NEEDLES.get(kind) if kind is not None else None
    if needle is None:
        return False
    try:
        if not os.path.isfile(path) or os.stat(path).st_size > MAX_BYTES:
            return False
        with open(path, "rb") as file:
            return re.search(needle, file.read()) is not None
    except OSError:
        return False
