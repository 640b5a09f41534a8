"""Models on this machine: a directory with a `config.json`, an adapter's directory, the Hugging Face cache. Only JSON is read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from memlint.paths import expanded, text_of
from memlint.typed import Any

MAX_BYTES = 2 * 1024 * 1024
"""A config.json is a few KB; label maps make some of them a few hundred."""


def directory_config(model_id: str, base: str) -> Mapping[str, Any] | None:
    """The configuration that a path names: a .json file, or the `config.json` of a directory."""
    path = os.path.join(base, expanded(model_id))
    return _configuration(path if path.endswith(".json") else os.path.join(path, "config.json"))


def adapter_base(model_id: str, base: str) -> str | None:
    """The base model that the adapter in a directory was trained on (PEFT's adapter_config.json)."""
    adapter = _read(os.path.join(base, expanded(model_id), "adapter_config.json"))
    start = adapter.get("base_model_name_or_path") if adapter else None
    return start if isinstance(start, str) and start and start != model_id else None


def cached_config(model_id: str) -> Mapping[str, Any] | None:
    """The configuration of a hub id's current snapshot in the Hugging Face cache."""
    if model_id.count("/") > 1 or model_id.startswith((".", "/", "~")) or "\\" in model_id:
        return None
    repository = os.path.join(_hub(), f"models--{model_id.replace('/', '--')}")
    snapshots = os.path.join(repository, "snapshots")
    try:
        names = sorted(os.listdir(snapshots), reverse=True)
    except (OSError, ValueError):
        return None
    try:
        commit = text_of(os.path.join(repository, "refs", "main"), "ascii").strip()[:64]
    except (OSError, ValueError):
        commit = ""
    names.sort(key=lambda name: name != commit)
    return next((config for name in names if (config := _configuration(os.path.join(snapshots, name, "config.json")))), None)


def _hub() -> str:
    """Where huggingface_hub keeps repositories (its constants.py): HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/..."""
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if cache:
        return cache
    home = os.environ.get("HF_HOME")
    if home:
        return os.path.join(home, "hub")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache"), "huggingface", "hub")


def _configuration(path: str) -> Mapping[str, Any] | None:
    """A JSON file that is a model's configuration."""
    config = _read(path)
    return config if config and (config.get("model_type") or config.get("architectures")) else None


def _read(path: str) -> dict[str, Any] | None:
    try:
        if not os.path.isfile(path) or os.stat(path).st_size > MAX_BYTES:
            return None
        value = json.loads(text_of(path))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
