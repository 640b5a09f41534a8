"""From what a script or config names to an `Architecture`, offline, with the reason shown.

The order: a configuration in the code, `[tool.memlint.models]`, a local directory with a `config.json`, the Hugging Face
cache on this machine, the catalogue and its aliases, the same id without the suffix of a quantised or converted copy, the
last components of a local-looking path, and at last a guess from family and size that says it is one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memlint.models import catalogue
from memlint.models.architecture import Architecture
from memlint.models.config import from_config, text_part

MAX_CONFIG_BYTES = 2 * 1024 * 1024
"""A config.json is a few KB; label maps make some of them a few hundred."""

TELL = (
    "name a directory with its config.json: [tool.memlint.models] \"{id}\" = \"path/to/config.json\"",
    "name a model of the same shape: [tool.memlint.models] \"{id}\" = \"org/name\"",
    "pass one: --set model.id=org/name (or --set model.config='{{\"model_type\": ...}}')",
)
"""The ways to tell memlint what a model is, for the report of an unknown one."""

COPY_SUFFIX = re.compile(
    r"[-_.](unsloth-bnb-4bit|bnb-4bit|bnb-8bit|4bit|8bit|int4|int8|w4a16|w8a8|gptq|awq|hqq|exl2|gguf|fp16|bf16|fp8|fp8-dynamic|"
    r"(gptq|awq)-int[48]|(gptq|awq)-[48]bit|quantized\.w[48]a(8|16)|mlx|mlx-[48]bit)$",
    re.IGNORECASE,
)
"""What the name of a quantised or converted copy adds to the name of its base; it does not change the base's shape."""

STEP = re.compile(r"^(checkpoint|step|epoch|global_step|iter)[-_]?\d+$|^(final|latest|last|best|hf|main|snapshots?)$", re.IGNORECASE)
"""Directory names inside a training output: the model's name is above them."""

SIZE = re.compile(r"(?<![a-z0-9.])(\d+x\d+(?:\.\d+)?b|a?\d+(?:[._]\d+)?[bm])(?![a-z0-9])", re.IGNORECASE)
"""A size in a model's name: 7B, 1.5b, 350M, 8x7B, A3B."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """What is known about a model, and how it is known."""

    architecture: Architecture | None
    how: str
    """One clause for a person: `catalogue`, `alias of X (reason)`, `config.json in DIR`, `unknown model`."""
    exact: bool = False
    suggestions: tuple[str, ...] = ()
    """For an unknown or guessed model: catalogue ids with a similar name, the most similar first."""
    tell: tuple[str, ...] = ()
    """For an unknown model: the ways to tell memlint about it."""
    entry: Mapping[str, Any] | None = None
    """The catalogue's line, where the catalogue was used."""


def lookup(
    model_id: str | None,
    *,
    config: Mapping[str, Any] | None = None,
    base: Path | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Lookup:
    """The architecture of a model.

    `config` is an inline configuration: whole when it has a `model_type`, else changes on top of `model_id`'s.
    `base` is the directory to which relative paths belong. `overrides` is `[tool.memlint.models]`: id -> path or other id.
    Never raises: what cannot be read is unknown.
    """
    base = base or Path()
    if config:
        return _inline(model_id, config, base, overrides or {})
    if not model_id or not model_id.strip():
        return _unknown("", "nothing names the model")
    return _named(model_id.strip(), base, overrides or {})


def _inline(model_id: str | None, config: Mapping[str, Any], base: Path, overrides: Mapping[str, str]) -> Lookup:
    """A configuration in the input, alone or over the configuration of the model it starts from."""
    if config.get("model_type") or not model_id:
        architecture = from_config(config, model_id or "inline config", "inline config")
        complete = bool(architecture.layers and architecture.hidden_size)
        if not complete and not architecture.model_type:
            return _unknown(model_id or "", "inline config without a model_type")
        return Lookup(architecture, "inline config", exact=complete)
    start = _named(model_id, base, overrides)
    if start.architecture is None:
        return start
    merged = {**start.architecture.config, **config}
    changed = from_config(_without_derived(merged, config), start.architecture.name, start.architecture.source)
    changed = replace(changed, exact=start.exact, dtype=changed.dtype or start.architecture.dtype)
    return Lookup(changed, f"{start.how}, with inline changes ({', '.join(map(str, config))})", start.exact, entry=start.entry)


def _without_derived(merged: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Per-layer lists follow the number of layers again when that number is changed."""
    if not any("layer" in str(key) for key in changes):
        return dict(merged)
    return {key: value for key, value in merged.items() if key in changes or not isinstance(value, list)}


def _named(model_id: str, base: Path, overrides: Mapping[str, str], depth: int = 0) -> Lookup:
    override = overrides.get(model_id)
    if override and override != model_id and depth < 4:
        found = _directory(override, base) or _named(override, base, overrides, depth + 1)
        return replace(found, how=f"[tool.memlint.models] {model_id} -> {override}: {found.how}")
    for find in (_directory, _hub_cache):
        if local := find(model_id, base):
            if isinstance(local, Lookup):
                return local
    return (
        _catalogued(model_id)
        or _copy(model_id)
        or _path(model_id, base, overrides, depth)
        or _bare(model_id)
        or _guess(model_id)
        or _unknown(model_id, "unknown model")
    )


def _directory(model_id: str, base: Path) -> Lookup | None:
    """A `config.json`, or a directory that holds one; a directory with an adapter leads to the adapter's base model."""
    try:
        path = base / Path(model_id).expanduser()
        if path.is_file() and path.suffix == ".json":
            return _from_file(path, model_id)
        if not path.is_dir():
            return None
        if found := _from_file(path / "config.json", model_id):
            return found
        adapter = _read_json(path / "adapter_config.json")
    except (OSError, ValueError, RuntimeError):
        return None
    start = adapter.get("base_model_name_or_path") if adapter else None
    if not isinstance(start, str) or start == model_id:
        return None
    found = _catalogued(start) or _copy(start)
    return replace(found, how=f"base of the adapter in {model_id}: {found.how}") if found else None


def _hub_cache(model_id: str, base: Path) -> Lookup | None:
    """The newest snapshot of the model in the Hugging Face cache of this machine."""
    if model_id.count("/") > 1 or model_id.startswith((".", "/", "~")) or "\\" in model_id:
        return None
    for root in _hub_roots():
        repository = root / f"models--{model_id.replace('/', '--')}"
        try:
            if not repository.is_dir():
                continue
            revision = repository / "refs" / "main"
            commit = revision.read_text(encoding="ascii").strip()[:64] if revision.is_file() else ""
            snapshots = [repository / "snapshots" / commit] if commit else sorted((repository / "snapshots").iterdir())
        except (OSError, ValueError):
            continue
        for snapshot in reversed(snapshots):
            if found := _from_file(snapshot / "config.json", model_id, "Hugging Face cache"):
                return found
    return None


def _hub_roots() -> Iterator[Path]:
    """Where huggingface_hub keeps repositories (its constants.py): HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache."""
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if cache:
        yield Path(cache)
        return
    home = os.environ.get("HF_HOME")
    if home:
        yield Path(home).expanduser() / "hub"
        return
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    yield Path(user) / "huggingface" / "hub"


def _from_file(path: Path, model_id: str, where: str = "") -> Lookup | None:
    """The architecture in a config.json, with the catalogue's counts when it has the same model in the same shape."""
    config = _read_json(path)
    if not config or not (config.get("model_type") or config.get("architectures")):
        return None
    source = f"{where}: {path.name}" if where else f"{path.name} in {model_id}"
    architecture = from_config(config, model_id, source)
    entry = catalogue.find(model_id)
    if entry is not None:
        counted = catalogue.architecture(entry.row)
        if _shape(counted) == _shape(architecture):
            architecture = replace(architecture, params=counted.params, linears=counted.linears)
    return Lookup(architecture, source, exact=bool(architecture.layers), entry=entry.row if entry else None)


def _shape(architecture: Architecture) -> tuple[object, ...]:
    return (
        architecture.model_type,
        architecture.hidden_size,
        architecture.layers,
        architecture.heads,
        architecture.kv_heads,
        architecture.intermediate_size,
        architecture.vocab_size,
        bool(text_part(architecture.config) is architecture.config),
    )


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        if not path.is_file() or path.stat().st_size > MAX_CONFIG_BYTES:
            return None
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _catalogued(model_id: str) -> Lookup | None:
    found = catalogue.find(model_id)
    if found is None:
        return None
    architecture = replace(catalogue.architecture(found.row), name=model_id)
    how = "catalogue" if not found.alias_of else f"catalogue, same shape as {found.alias_of} ({found.basis})"
    return Lookup(architecture, how, exact=True, entry=found.row)


def _copy(model_id: str) -> Lookup | None:
    """A quantised or converted copy, by the id of its base: the same owner's, else the one model of that name."""
    stem = model_id
    for _ in range(3):
        stem, cut = COPY_SUFFIX.subn("", stem)
        if not cut:
            return None
        found = _catalogued(stem) or _bare(stem.rpartition("/")[2])
        if found is not None:
            return replace(found, how=f"copy of {stem} by its name: {found.how}")
    return None


def _path(model_id: str, base: Path, overrides: Mapping[str, str], depth: int) -> Lookup | None:
    """A path that is not on this machine: its last components may spell a hub id, or the name of one model."""
    text = model_id.replace("\\", "/").removeprefix("file://")
    parts = [part for part in text.split("/") if part not in ("", ".", "..", "~")]
    if len(parts) < 2 and not text.startswith((".", "/", "~")):
        return None
    hub = next((part for part in reversed(parts) if part.startswith("models--")), None)
    if hub and hub.count("--") >= 2:
        repository = "/".join(hub.split("--", 2)[1:])
        return _catalogued(repository) or _copy(repository)
    inside = 0
    while len(parts) > 1 and STEP.match(parts[-1]):
        parts.pop()
        inside += 1
    if not parts or (len(parts) == 2 and not inside and text.count("/") == 1 and not text.startswith((".", "/", "~"))):
        return None  # an ordinary hub id, which the catalogue does not have
    whole = "/".join(parts[-2:])
    if whole in overrides and depth < 4:
        return _named(whole, base, overrides, depth + 1)
    found = (_catalogued(whole) or _copy(whole)) if len(parts) > 1 else None
    found = found or _bare(parts[-1])
    if found is None or found.architecture is None:
        return None
    exact = found.exact and not inside
    return replace(
        found,
        architecture=replace(found.architecture, exact=exact),
        how=f"the path's last components: {found.how}",
        exact=exact,
    )


def _bare(name: str) -> Lookup | None:
    """A name without owner, when it is the name of one model (or of several of one shape)."""
    ids = catalogue.named(name.rpartition("/")[2]) if name else ()
    found = [entry for model_id in ids if (entry := catalogue.find(model_id))]
    if not found:
        stem, cut = COPY_SUFFIX.subn("", name)
        return _bare(stem) if cut and stem else None
    candidates = [catalogue.architecture(entry.row) for entry in found]
    exact = all(_shape(other) == _shape(candidates[0]) for other in candidates)
    how = f"the name of {candidates[0].name}"
    if not exact:
        how += f" (also of {', '.join(other.name for other in candidates[1:])})"
    return Lookup(
        replace(candidates[0], exact=exact), how, exact, () if exact else tuple(ids), entry=found[0].row
    )


def _guess(model_id: str) -> Lookup | None:
    """The most similar model of the same family and sizes, by name only."""
    name = model_id.rstrip("/").rpartition("/")[2]
    sizes = _sizes(name)
    family = re.match(r"[a-z]{2,}", name.lower())
    if not sizes or family is None:
        return None
    similar = [
        model_id
        for model_id in catalogue.similar(name, count=8)
        if _sizes(model_id.rpartition("/")[2]) == sizes and model_id.rpartition("/")[2].lower().startswith(family.group())
    ]
    for candidate in similar:
        if found := catalogue.find(candidate):
            architecture = replace(catalogue.architecture(found.row), name=model_id, exact=False)
            how = f"guess from the name: family and size of {candidate}"
            return Lookup(architecture, how, False, tuple(similar), _tell(model_id), found.row)
    return None


def _sizes(name: str) -> frozenset[str]:
    return frozenset(size.lower().replace("_", ".") for size in SIZE.findall(name))


def _unknown(model_id: str, how: str) -> Lookup:
    suggestions = catalogue.similar(model_id.rstrip("/").rpartition("/")[2]) if model_id else ()
    return Lookup(None, how, False, suggestions, _tell(model_id) if model_id else ())


def _tell(model_id: str) -> tuple[str, ...]:
    return tuple(text.format(id=model_id) for text in TELL)
