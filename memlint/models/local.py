"""Models on this machine: a directory with a `config.json`, an adapter's directory, the Hugging Face cache. Only JSON is read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from memlint.typed import Any

MAX_BYTES = 2 * 1024 * 1024
"""A config.json is a few KB; label maps make some of them a few hundred."""


def directory_config(model_id: str, base: Path) -> Mapping[str, Any] | None:
    """The configuration that a path names: a .json file, or the `config.json` of a directory."""
    try:
        path = base / Path(model_id).expanduser()
        return _configuration(path if path.suffix == ".json" else path / "config.json")
    except (OSError, ValueError, RuntimeError):
        return None


def shown(name: str) -> str:
    """An absolute path as a person wants to read it: relative to the working directory when it lies below; other text as it is."""
    try:
        return Path(name).relative_to(Path.cwd()).as_posix()
    except (OSError, ValueError):
        return name


def adapter_base(model_id: str, base: Path) -> str | None:
    """The base model that the adapter in a directory was trained on (PEFT's adapter_config.json)."""
    try:
        adapter = _read(base / Path(model_id).expanduser() / "adapter_config.json")
    except (OSError, ValueError, RuntimeError):
        return None
    start = adapter.get("base_model_name_or_path") if adapter else None
    return start if isinstance(start, str) and start and start != model_id else None


def cached_config(model_id: str) -> Mapping[str, Any] | None:
    """The configuration of a hub id's current snapshot in the Hugging Face cache."""
    if model_id.count("/") > 1 or model_id.startswith((".", "/", "~")) or "\\" in model_id:
        return None
    repository = _hub() / f"models--{model_id.replace('/', '--')}"
    try:
        if not repository.is_dir():
            return None
        revision = repository / "refs" / "main"
        commit = revision.read_text(encoding="ascii").strip()[:64] if revision.is_file() else ""
        snapshots = sorted((repository / "snapshots").iterdir(), reverse=True)
        snapshots.sort(key=lambda snapshot: snapshot.name != commit)
    except (OSError, ValueError):
        return None
    return next((config for snapshot in snapshots if (config := _configuration(snapshot / "config.json"))), None)


def _hub() -> Path:
    """Where huggingface_hub keeps repositories (its constants.py): HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/..."""
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if cache:
        return Path(cache)
    home = os.environ.get("HF_HOME")
    if home:
        return Path(home) / "hub"
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "huggingface" / "hub"


def _configuration(path: Path) -> Mapping[str, Any] | None:
    """A JSON file that is a model's configuration."""
    config = _read(path)
    return config if config and (config.get("model_type") or config.get("architectures")) else None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
