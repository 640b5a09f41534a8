"""Write `memlint/models/data/catalogue.tsv` from a directory of source files.

    python tools/build_catalogue.py DIRECTORY [DIRECTORY ...]

A directory holds (each optional; a later directory adds to, and replaces, what an earlier one said):

    models.json            id -> {config, params, params_class, verified, verification, source, torch_dtype, module_facts, ...}
    aliases.json           other id -> id;  alias_basis.json: other id -> why
    linears.json           id -> {"linear": [[leaf name, in, out, how many], ...], "fused3d": [...]}
    dropout_defaults.json  "class_defaults_gt0" by model type, for types that transformers does not know

The result is one line per key, sorted: `folded key<TAB>JSON`, in three kinds:

    org/name   an object: a catalogue entry                (the id as its owner writes it is under "id")
    org/name   an array [id, basis]: an alias
    /name      an array of ids: what a bare name may mean, the id with the most aliases first (the catalogue's own entries;
               mirrors only where none of these fits; only names that say something, see `telling`)

The order and the bytes depend on the input only.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "memlint/models/data/catalogue.tsv"


def read(directory: Path, name: str) -> Any:
    """A source file, empty when the directory has none."""
    file = directory / name
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def entry(model_id: str, row: dict[str, Any], linears: dict[str, Any], dropouts: dict[str, Any]) -> dict[str, Any]:
    """One model as stored: only what a lookup needs, absent when unknown."""
    found = linears.get(model_id) or {}
    kept: dict[str, Any] = {
        "id": model_id,
        "config": row["config"],
        "params": row.get("params"),
        "class": row.get("params_class"),
        "backbone": row.get("params_backbone"),
        "published": row.get("params_published"),
        "untied": row.get("params_untied_lm_head"),
        "verified": bool(row.get("verified")),
        "check": row.get("verification"),
        "tied": (row.get("module_facts") or {}).get("tied_output"),
        "dtype": row.get("torch_dtype"),
        "gated": row.get("gated"),
        "license": row.get("license"),
        "linears": found.get("linear"),
        "experts": found.get("fused3d"),
        "dropouts": row.get("dropout_gt0") or dropouts.get(row["config"].get("model_type")),
        "conflicts": bool(row.get("source_conflicts")),
        "unsourced": row.get("unsourced_fields"),
        "unknown": row.get("unknown_fields"),
        "note": row.get("note"),
        "source": row.get("source"),
    }
    if kept["backbone"] == kept["params"]:
        del kept["backbone"]
    return {key: value for key, value in kept.items() if value not in (None, [], {}, "") and not (key == "conflicts" and not value)}


def fold(text: str) -> str:
    """Hub ids are compared without case."""
    return text.lower()


def telling(name: str, basis: str) -> bool:
    """Whether a bare name points at a model: it has a number in it (`Qwen2.5-7B`; `outputs` has not), or somebody documented it."""
    return any(letter.isdigit() for letter in name) or basis.startswith(("documented", "rename", "organisation"))


def names(models: dict[str, Any], aliases: dict[str, str], basis: dict[str, str]) -> dict[str, list[str]]:
    """What a bare name may mean: the entries of that name, else the targets of the aliases of that name."""
    used = Counter(aliases.values())
    own: dict[str, set[str]] = defaultdict(set)
    other: dict[str, set[str]] = defaultdict(set)
    for model_id, row in models.items():
        name = fold(model_id.rpartition("/")[2])
        if telling(name, "documented" if row.get("published_source") and used[model_id] > 5 else ""):
            own[name].add(model_id)
    for alias, target in aliases.items():
        name = fold(alias.rpartition("/")[2])
        if telling(name, basis.get(alias, "")):
            other[name].add(target)
    found = {name: own.get(name) or other[name] for name in sorted({*own, *other})}
    return {name: sorted(ids, key=lambda model_id: (-used[model_id], model_id)) for name, ids in found.items()}


def main(directories: list[Path]) -> None:
    """Read every directory and write the catalogue."""
    models: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    basis: dict[str, str] = {}
    linears: dict[str, Any] = {}
    dropouts: dict[str, Any] = {}
    for directory in directories:
        models |= read(directory, "models.json")
        aliases |= read(directory, "aliases.json")
        basis |= read(directory, "alias_basis.json")
        linears |= read(directory, "linears.json")
        dropouts |= read(directory, "dropout_defaults.json").get("class_defaults_gt0", {})
    folded = {fold(model_id) for model_id in models}
    aliases = {alias: target for alias, target in aliases.items() if fold(alias) not in folded}
    if missing := sorted(set(aliases.values()) - set(models)):
        raise SystemExit(f"aliases of unknown models: {missing}")

    lines: dict[str, Any] = {}
    for model_id in sorted(models):
        lines[fold(model_id)] = entry(model_id, models[model_id], linears, dropouts)
    for alias in sorted(aliases):
        lines[fold(alias)] = [aliases[alias], basis.get(alias, "")]
    for name, ids in names(models, aliases, basis).items():
        lines[f"/{name}"] = ids
    text = [f"{key}\t{json.dumps(lines[key], separators=(',', ':'), ensure_ascii=True)}" for key in sorted(lines, key=str.encode)]
    text.insert(0, f"#\t{len(models)} models, {len(aliases)} aliases")
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join(text) + "\n", encoding="utf-8", newline="\n")
    print(f"{len(models)} models, {len(aliases)} aliases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main([Path(argument) for argument in sys.argv[1:]])
