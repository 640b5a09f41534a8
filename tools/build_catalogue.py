"""Write `memlint/models/data/catalogue.tsv` from itself and from directories of source files.

    python tools/build_catalogue.py memlint/models/data/catalogue.tsv tools/sources/models
    python tools/build_catalogue.py DIRECTORY ...           # from scratch

An argument is an existing catalogue or a directory; a later one adds to, and replaces, what an earlier one said. A directory
holds (each optional):

    models.json            id -> {config, params, params_class, verified, verification, source, module_facts, ...}
    aliases.json           other id -> id;  alias_basis.json: other id -> why
    linears.json           id -> {"linear": [[leaf name, in, out, how many], ...], "fused3d": [...]}
    computed.json          id -> what the class computes from the config and the rules of class_defaults.tsv do not give
    dropout_defaults.json  "class_defaults_gt0" by model type, for types that transformers does not know

`tools/measure_models.py` writes such files. The result is one line per key, sorted: `folded key<TAB>JSON`, of three kinds:

    org/name   an object: a catalogue entry                (the id as its owner writes it is under "id")
    org/name   an array [id, basis]: an alias
    //name     an array of ids: the entries of that bare name, the one with the most aliases first
    /name      an array of ids: what the bare name of an alias may mean, where no entry has that name
               (only names that say something, see `telling`)

The order and the bytes depend on the input only, so a refresh is reviewed as a diff.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "memlint/models/data/catalogue.tsv"


Entries = dict[str, dict[str, Any]]
"""Folded id -> entry."""
Aliases = dict[str, tuple[str, str]]
"""Folded id -> (id of the entry, why)."""


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
        "library": row.get("library"),
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
    if headless(kept["class"]):
        del kept["tied"]  # a head that somebody puts on it is tied as its configuration says
    if kept["backbone"] == kept["params"]:
        del kept["backbone"]
    if not kept["conflicts"]:
        del kept["conflicts"]
    return {key: value for key, value in kept.items() if value not in (None, [], {}, "")}


def headless(name: str | None) -> bool:
    """Whether a class is a backbone without an output head."""
    return str(name).partition("(")[0].endswith("Model") and not str(name).endswith(("LMHeadModel", "LMHeadModel)", "MTModel"))


def fold(text: str) -> str:
    """Hub ids are compared without case."""
    return text.lower()


def telling(key: str, basis: str) -> bool:
    """Whether a bare name points at a model: it has a number in it (`Qwen2.5-7B`, not `outputs`), or is documented."""
    documented = basis.startswith(("documented", "rename", "organisation"))
    return documented or any(letter.isdigit() for letter in key.rpartition("/")[2])


def names(entries: Entries, aliases: Aliases) -> dict[str, list[str]]:
    """What a bare name may mean: the entries of that name (`//name`), else the targets of its aliases (`/name`)."""
    used = Counter(target for target, _ in aliases.values())
    own: dict[str, set[str]] = defaultdict(set)
    other: dict[str, set[str]] = defaultdict(set)
    for key, row in entries.items():
        known = "published" in row and used[row["id"]] > 5
        if telling(key, "documented" if known else ""):
            own[key.rpartition("/")[2]].add(row["id"])
    for key, (target, basis) in aliases.items():
        if telling(key, basis):
            other[key.rpartition("/")[2]].add(target)
    found = {f"//{name}": ids for name, ids in own.items()}
    found |= {f"/{name}": ids for name, ids in other.items() if name not in own}
    return {name: sorted(ids, key=lambda model_id: (-used[model_id], model_id)) for name, ids in found.items()}


def from_catalogue(file: Path) -> tuple[Entries, Aliases]:
    """The entries and aliases of an existing catalogue."""
    entries: Entries = {}
    aliases: Aliases = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("\t")
        if not key.startswith(("/", "#")):
            parsed = json.loads(value)
            if isinstance(parsed, dict):
                if headless(parsed.get("class")):
                    parsed.pop("tied", None)
                entries[key] = parsed
            else:
                aliases[key] = (parsed[0], parsed[1])
    return entries, aliases


def from_directory(directory: Path) -> tuple[Entries, Aliases, Entries]:
    """The entries and aliases of a directory of source files, and what its `computed.json` adds to entries."""
    linears = read(directory, "linears.json")
    dropouts = read(directory, "dropout_defaults.json").get("class_defaults_gt0", {})
    basis = read(directory, "alias_basis.json")
    models = read(directory, "models.json").items()
    computed = {fold(model_id): value for model_id, value in read(directory, "computed.json").items()}
    entries = {fold(model_id): entry(model_id, row, linears, dropouts) for model_id, row in models}
    aliases = {fold(alias): (target, basis.get(alias, "")) for alias, target in read(directory, "aliases.json").items()}
    return entries, aliases, computed


def main(inputs: list[Path], result: Path = TARGET) -> None:
    """Merge every input and write the catalogue."""
    entries: Entries = {}
    aliases: Aliases = {}
    for path in inputs:
        more, others, computed = from_directory(path) if path.is_dir() else (*from_catalogue(path), {})
        entries |= more
        aliases |= others
        if computed:  # it covers the whole catalogue
            for key, row in entries.items():
                row.pop("computed", None)
                if key in computed:
                    row["computed"] = computed[key]
    aliases = {alias: value for alias, value in aliases.items() if alias not in entries}
    if missing := sorted({target for target, _ in aliases.values()} - {row["id"] for row in entries.values()}):
        raise SystemExit(f"aliases of unknown models: {missing}")

    lines: dict[str, Any] = {**entries, **aliases}
    lines |= names(entries, aliases)
    text = [f"#\t{len(entries)} models, {len(aliases)} aliases"]
    for key in sorted(lines, key=str.encode):
        text.append(f"{key}\t{json.dumps(lines[key], separators=(',', ':'), ensure_ascii=True)}")
    result.write_text("\n".join(text) + "\n", encoding="utf-8", newline="\n")
    print(f"{len(entries)} models, {len(aliases)} aliases, {result.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main([Path(argument) for argument in sys.argv[1:]])
