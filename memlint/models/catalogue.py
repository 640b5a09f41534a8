"""The catalogue of known models (`data/catalogue.tsv`, written by `tools/build_catalogue.py`), read by id, not whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from memlint.models import table
from memlint.models.architecture import Architecture
from memlint.models.config import described_type, from_config
from memlint.typed import Any, NamedTuple

FILE = "catalogue.tsv"


class Found(NamedTuple):
    """A catalogue entry, and why an alias leads to it."""

    row: Mapping[str, Any]
    alias_of: str = ""
    basis: str = ""


def find(model_id: str) -> Found | None:
    """The entry of a hub id or of an alias, compared without case."""
    key = model_id.lower()
    if key.startswith(("/", "#")):
        return None
    line = table.get(FILE, key)
    if line is None:
        return None
    value = json.loads(line)
    if isinstance(value, dict):
        return Found(value)
    target, basis = value
    row = table.get(FILE, target.lower())
    return Found(json.loads(row), target, basis) if row else None


def architecture(row: Mapping[str, Any]) -> Architecture:
    """The architecture of an entry: its configuration with class defaults, its counted parameters and Linears.

    `tied` is what transformers 5 builds; T5 v1.1 and mT5 checkpoints say otherwise in `config["tie_word_embeddings"]`, and
    transformers 4 follows the checkpoint.
    """
    shape = from_config(configuration(row), row["id"], source(row))
    return shape._replace(
        tied=row.get("tied", shape.tied),
        dtype=row.get("dtype") or shape.dtype,
        params=row.get("params"),
        linears=tuple((name, fan_in, fan_out, count) for name, fan_in, fan_out, count in row.get("linears", ())),
        stacked=tuple((name, stack, rows, columns, count) for name, stack, rows, columns, count in row.get("experts", ())),
        dropouts={**shape.dropouts, **row.get("dropouts", {})},
    )


def configuration(row: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of an entry as its source has it, with what its class computes from it beyond simple rules."""
    config, computed = row["config"], row.get("computed", {})
    assumed = described_type(str(config.get("model_type") or "")).get("defaults", {})
    # A part that the source leaves to its class is the class's own, not that of its model type (Voxtral's Llama).
    parts = {key: assumed[key] for key in computed if key not in config and isinstance(assumed.get(key), Mapping)}
    return _over({**config, **parts}, computed)


def _over(config: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(config)
    for key, value in more.items():
        inner = merged.get(key)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            merged[key] = _over(inner, value)
        else:
            merged[key] = value
    return merged


def source(row: Mapping[str, Any]) -> str:
    """Where an entry's numbers come from and how they were checked."""
    check = row.get("check") or "not checked against a published count"
    return f"{row.get('source', 'unknown source')} ({'verified: ' if row.get('verified') else 'unverified: '}{check})"


def named(name: str) -> tuple[str, ...]:
    """The ids that a bare name may mean, the most used first."""
    line = table.get(FILE, f"//{name.lower()}") or table.get(FILE, f"/{name.lower()}")
    return tuple(json.loads(line)) if line else ()


def ids() -> Iterator[str]:
    """Every id of an entry, as its owner writes it (aliases are left out)."""
    for _, line in table.items(FILE):
        if line.startswith('{"id":"'):
            yield line[7 : line.index('"', 7)]


def own_names() -> Iterator[tuple[str, str]]:
    """Every entry's bare name, folded, and its id. They come first in the file, so the rest is not read."""
    for key, line in table.items(FILE):
        if not key.startswith("//"):
            return
        yield key[2:], line[2 : line.index('"', 2)]


def similar(text: str, count: int = 3) -> tuple[str, ...]:
    """Ids of entries whose name resembles a text, the most similar first."""
    import difflib  # only on the way to an error message

    wanted = text.lower()
    pairs = {wanted[i : i + 2] for i in range(len(wanted) - 1)}
    by_name = {name: model_id for name, model_id in own_names() if sum(pair in name for pair in pairs) * 2 >= len(pairs)}
    return tuple(by_name[name] for name in difflib.get_close_matches(wanted, by_name, n=count, cutoff=0.55))
