"""From what a script or config names to an `Architecture`, offline, with the reason shown.

The order: a configuration in the code, `[tool.memlint.models]`, a local directory with a `config.json` (or an adapter), the
Hugging Face cache on this machine, the catalogue and its aliases, the same id without the suffix of a quantised or converted
copy, the last components of a local-looking path, a bare name, and at last a guess that says it is one.

`[tool.memlint.models]` stands above what lies on the disk because somebody wrote it for memlint, into a file that every machine
shares: a cache or a directory is there on one machine and not in CI, and nothing else could correct a stale one. Where the two
disagree in shape, the reason says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memlint.models import catalogue, local
from memlint.models.architecture import Architecture
from memlint.models.config import from_config, text_part
from memlint.models.guess import same_family_and_size
from memlint.paths import shown
from memlint.typed import Any, NamedTuple

TELL = (
    'name its config.json or a model of the same shape: [tool.memlint.models] "{id}" = "path/to/config.json" or "org/name"',
    "say it for one run: --set model.id=org/name",
)
"""Ways to tell memlint what a model is, for the report of an unknown one; the first one is `TELL_HUB` or `TELL_LOCAL`."""

TELL_HUB = "have its config.json fetched from the hub, once: memlint models add {id}"
TELL_LOCAL = "put its config.json where the name says: {id}/config.json"

COPY_SUFFIX = (
    r"(?i)[-_.](unsloth-bnb-4bit|bnb-[48]bit|bnb-nf4|bnb-nf4-bf16|nf4|[48]bit|int[48]|w4a16|w8a8|gptq|awq|hqq|exl2|gguf|fp16|bf16|fp8|fp8-dynamic|"
    r"(gptq|awq)-int[48]|(gptq|awq)-[48]bit|quantized\.w[48]a(8|16)|mlx|mlx-[48]bit)$"
)
"""What the name of a quantised or converted copy adds to the name of its base; the base's shape stays."""

STEP = r"(?i)(checkpoint|step|epoch|global_step|iter)[-_]?\d+|final|latest|last|best|hf|main|snapshots?"
"""Directories inside a training output: the model's name is above them."""

HUB_ID = r"[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96}"
"""How the hub names a repository (huggingface_hub 2.4 `utils/_validators.py`); only the oldest have no owner."""

MAX_OVERRIDES = 4
"""`[tool.memlint.models]` may map an id to an id that it maps again; longer chains are not followed."""


class Lookup(NamedTuple):
    """What is known about a model, and how it is known."""

    architecture: Architecture | None
    how: str
    """One clause for a person: `catalogue`, `config.json in DIR`, `guess from the name: ...`, `unknown model`."""
    exact: bool = False
    """False for a guess, for an ambiguous name, and for an unknown model."""
    suggestions: tuple[str, ...] = ()
    """For a guessed, ambiguous or unknown model: catalogue ids with a similar name, the most similar first."""
    tell: tuple[str, ...] = ()
    """For a guessed or unknown model: the ways to tell memlint about it."""
    entry: Mapping[str, Any] | None = None
    """The catalogue's line, where the catalogue was used."""
    written: Mapping[str, Any] | None = None
    """The configuration as its source has it, without class defaults."""


def lookup(
    model_id: str | None,
    *,
    config: Mapping[str, Any] | None = None,
    base: str = "",
    overrides: Mapping[str, str] | None = None,
) -> Lookup:
    """The architecture of a model.

    `config` is an inline configuration: whole when it has a `model_type`, else changes on top of `model_id`'s.
    `base` is the directory to which relative paths belong. `overrides` is `[tool.memlint.models]`: id -> path or id.
    Never raises: what cannot be read is unknown.
    """
    name = (model_id or "").strip()
    overrides = overrides or {}
    if config:
        return _inline(name, config, base, overrides)
    return _named(name, base, overrides) if name else Lookup(None, "nothing names the model")


def _inline(name: str, config: Mapping[str, Any], base: str, overrides: Mapping[str, str]) -> Lookup:
    """A configuration in the input, alone or over the configuration of the model it starts from."""
    if config.get("model_type") or not name:
        found = from_config(config, name or "inline config", "inline config")
        complete = bool(found.model_type and found.layers and found.hidden_size)
        if not complete and not (found.model_type or found.layers):
            return Lookup(None, "inline config without a model_type", tell=_tell(name or "inline config"))
        return Lookup(found._replace(exact=complete), "inline config", complete, written=config)
    start = _named(name, base, overrides)
    if start.architecture is None or start.written is None:
        return start
    changed = from_config({**start.written, **config}, start.architecture.name, start.architecture.source)
    changed = _counted(changed, start.entry)._replace(exact=start.exact, dtype=changed.dtype or start.architecture.dtype)
    how = f"{start.how}, with inline changes ({', '.join(map(str, config))})"
    return start._replace(architecture=changed, how=how, written={**start.written, **config})


def _named(model_id: str, base: str, overrides: Mapping[str, str], followed: int = 0) -> Lookup:
    other = overrides.get(model_id)
    if other and other != model_id and followed < MAX_OVERRIDES:
        return _overridden(model_id, other, _directory(other, base) or _named(other, base, overrides, followed + 1), base)
    return (
        _directory(model_id, base)
        or _cached(model_id)
        or _catalogued(model_id)
        or _copy(model_id)
        or _path(model_id)
        or _bare(_last(model_id), foreign="/" in model_id)
        or _guess(model_id)
        or Lookup(None, "unknown model", False, catalogue.similar(_last(model_id)), _tell(model_id))
    )


def _overridden(model_id: str, other: str, found: Lookup, base: str) -> Lookup:
    """What `[tool.memlint.models]` leads to, and whether the disk says otherwise."""
    how = f"[tool.memlint.models] {model_id} -> {shown(other)}: {found.how}"
    beside = _directory(model_id, base) or _cached(model_id)
    mine, theirs = found.architecture, beside.architecture if beside else None
    if beside and mine and theirs and _shape(mine) != _shape(theirs):
        how = f"{how} ({beside.how} says otherwise)"
    return found._replace(how=how)


def _directory(model_id: str, base: str) -> Lookup | None:
    config = local.directory_config(model_id, base)
    if config is not None:
        file = shown(model_id)
        return _configured(config, model_id, file if file.endswith(".json") else f"config.json in {file}")
    start = local.adapter_base(model_id, base)
    found = (_catalogued(start) or _copy(start)) if start else None
    return found._replace(how=f"base of the adapter in {model_id}: {found.how}") if found else None


def _cached(model_id: str) -> Lookup | None:
    config = local.cached_config(model_id)
    return _configured(config, model_id, "Hugging Face cache") if config is not None else None


def _configured(config: Mapping[str, Any], model_id: str, how: str) -> Lookup:
    """A configuration file, with the catalogue's counts when it has the same model in the same shape."""
    found = catalogue.find(model_id)
    row = found.row if found else None
    architecture = _counted(from_config(config, model_id, how), row)
    exact = bool(architecture.model_type and architecture.layers)
    return Lookup(architecture._replace(exact=exact), how, exact, entry=row, written=config)


def _counted(architecture: Architecture, row: Mapping[str, Any] | None) -> Architecture:
    """The architecture with the counts of a catalogue entry of the same shape."""
    if row is None:
        return architecture
    counted = catalogue.architecture(row)
    if _shape(counted) != _shape(architecture):
        return architecture
    return architecture._replace(params=counted.params, linears=counted.linears, stacked=counted.stacked)


def _shape(architecture: Architecture) -> tuple[object, ...]:
    """What two models of one shape agree in."""
    config = architecture.config
    experts = text_part(config)
    return (
        architecture.model_type,
        architecture.hidden_size,
        architecture.layers,
        architecture.heads,
        architecture.kv_heads,
        architecture.head_dim,
        architecture.intermediate_size,
        architecture.vocab_size,
        experts.get("num_local_experts") or experts.get("n_routed_experts") or experts.get("num_experts"),
        experts is config,
    )


def _catalogued(model_id: str) -> Lookup | None:
    found = catalogue.find(model_id)
    if found is None:
        return None
    architecture = catalogue.architecture(found.row)._replace(name=model_id)
    how = f"catalogue, same shape as {found.alias_of} ({found.basis})" if found.alias_of else "catalogue"
    return Lookup(architecture, how, True, entry=found.row, written=catalogue.configuration(found.row))


def _copy(model_id: str) -> Lookup | None:
    """A quantised or converted copy, by the id of its base: the same owner's, else the one model of that name."""
    stem = model_id
    for _ in range(3):
        stem, cut = re.subn(COPY_SUFFIX, "", stem)
        if not cut:
            return None
        if found := _catalogued(stem) or _bare(_last(stem), foreign="/" in stem):
            return found._replace(how=f"copy of {stem} by its name: {found.how}")
    return None


def _path(model_id: str) -> Lookup | None:
    """A path that is not on this machine: its last components may spell a hub id, or the name of one model."""
    text = model_id.replace("\\", "/").removeprefix("file://")
    rooted = text.startswith((".", "/", "~")) or ":" in text
    parts = [part for part in text.split("/") if part not in ("", ".", "..", "~")]
    hub = next((part for part in reversed(parts) if part.startswith("models--") and part.count("--") > 1), None)
    if hub:
        repository = "/".join(hub.split("--", 2)[1:])
        return _catalogued(repository) or _copy(repository)
    steps = 0
    while len(parts) > 1 and re.fullmatch(STEP, parts[-1]):
        parts.pop()
        steps += 1
    if not parts or not (rooted or steps or len(parts) > 2):
        return None  # a hub id that the catalogue does not have, or a bare name
    whole = "/".join(parts[-2:])
    found = (_catalogued(whole) or _copy(whole) if len(parts) > 1 else None) or _bare(parts[-1])
    if found is None or found.architecture is None:
        return None
    exact = found.exact and not steps  # a training output may bear its base's name and have another head or vocabulary
    how = f"the path's last components: {found.how}"
    return found._replace(architecture=found.architecture._replace(exact=exact), how=how, exact=exact)


def _bare(name: str, foreign: bool = False) -> Lookup | None:
    """A name without owner, or under another (`foreign`) one: exact when it is the name of one model, or of several of one shape.

    Under another owner it must be a name that the model's own owner gave it, and its shape a verified one: what one person called
    a fine-tune says little about another's.
    """
    ids = catalogue.named(name)
    rows = [found.row for model_id in ids if (found := catalogue.find(model_id))]
    if not rows:
        stem, cut = re.subn(COPY_SUFFIX, "", name)
        return _bare(stem, foreign) if cut and stem else None
    candidates = [catalogue.architecture(row) for row in rows]
    alike = all(_shape(other) == _shape(candidates[0]) for other in candidates)
    exact = alike and not (foreign and not any(_official(row, name) for row in rows))
    how = f"the name of {ids[0]}" if exact else f"a name of {' and '.join(ids)}"
    architecture = candidates[0]._replace(exact=exact)
    return Lookup(architecture, how, exact, () if exact else ids, entry=rows[0], written=catalogue.configuration(rows[0]))


def _official(row: Mapping[str, Any], name: str) -> bool:
    """Whether a verified entry's owner has a model of this name."""
    return bool(row.get("verified")) and catalogue.find(f"{row['id'].partition('/')[0]}/{name}") is not None


def _guess(model_id: str) -> Lookup | None:
    """A model of the same family and size, and not more than that."""
    candidate = same_family_and_size(_last(model_id))
    found = catalogue.find(candidate) if candidate else None
    if found is None:
        return None
    architecture = catalogue.architecture(found.row)._replace(name=model_id, exact=False, params=None)
    how = f"guess from the name: family and size of {candidate}"
    near = dict.fromkeys((candidate, *catalogue.similar(_last(model_id))))
    return Lookup(architecture, how, False, tuple(near), _tell(model_id), found.row, catalogue.configuration(found.row))


def _last(model_id: str) -> str:
    """The last component of an id or a path."""
    return model_id.rstrip("/").rpartition("/")[2]


def is_hub_id(name: str) -> bool:
    """Whether a name may be that of a repository on the hub with its owner."""
    return re.fullmatch(HUB_ID, name) is not None


def _tell(model_id: str) -> tuple[str, ...]:
    first = TELL_HUB if is_hub_id(model_id) else TELL_LOCAL
    return tuple(text.replace("{id}", model_id) for text in (first, *TELL))
