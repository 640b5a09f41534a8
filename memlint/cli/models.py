"""`memlint models`: the models whose shape memlint knows."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from memlint.cli.failure import Failure
from memlint.cli.options import Parser
from memlint.config import Configs
from memlint.models import Architecture, lookup
from memlint.models.catalogue import ids
from memlint.report.style import for_stream
from memlint.report.text import parameters, plain


def run(arguments: Sequence[str]) -> int:
    """List the ids that contain a word; with one full id or path, its shape and how it is known."""
    parser = Parser("models", "The models whose shape memlint knows, by a word of their name.")
    parser.add_argument(
        "word", nargs="?", default="", metavar="WORD|ID|PATH", help="part of a name, an id, a folder with a config.json"
    )
    parser.add_argument("--format", choices=("full", "json"), default="full")
    options = parser.parse_args(arguments)
    found = [name for name in sorted(ids(), key=str.lower) if options.word.lower() in name.lower()]
    if options.word and (not found or options.word.lower() in map(str.lower, found)):
        return _one(options.word, options.format)
    if options.format == "json":
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        sys.stdout.write("".join(name + "\n" for name in found))
    return 0


def _one(name: str, form: str) -> int:
    known = lookup(name, base=Path(), overrides=Configs().settings_for(".").models)
    if known.architecture is None:
        close = f"; did you mean {', '.join(known.suggestions[:3])}?" if known.suggestions else ""
        raise Failure(f"no model matches {name!r}{close}")
    shape = known.architecture
    rows = {"model": shape.name, "known from": known.how, "exact": known.exact, **_shape(shape)}
    if form == "json":
        sys.stdout.write(json.dumps(rows, indent=2, default=str) + "\n")
        return 0
    style = for_stream(sys.stdout)
    shown = {name: parameters(value) if name == "params" and isinstance(value, int) else value for name, value in rows.items()}
    lines = [f"{style.dim(f'{name:<18}')}{plain(str(value))}" for name, value in shown.items() if value not in (None, "")]
    sys.stdout.write("".join(line + "\n" for line in lines))
    return 0


def _shape(shape: Architecture) -> dict[str, object]:
    names = (
        "model_type", "params", "hidden_size", "layers", "heads", "kv_heads", "head_dim", "intermediate_size",
        "vocab_size", "max_positions", "tied", "dtype", "source",
    )  # fmt: skip
    return {name: getattr(shape, name) for name in names}
