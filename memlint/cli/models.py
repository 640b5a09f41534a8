"""`memlint models`: the models whose shape memlint knows."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from memlint.cli.arguments import Parser
from memlint.cli.failure import Failure
from memlint.config import Configs
from memlint.config_file import ConfigError
from memlint.models import Lookup, lookup
from memlint.models.describe import describe, document, matching
from memlint.models.lookup import is_hub_id
from memlint.report.text import plain


def run(arguments: Sequence[str]) -> int:
    """List the ids that contain a word; with one full id or path, its shape, its parameters and how they are known."""
    if arguments and arguments[0] == "add":
        from memlint.cli import add_model

        return add_model.run(arguments[1:])
    parser = Parser(
        "models",
        "The models whose shape memlint knows, by a word of their name; one of them with its arithmetic.\n"
        "`memlint models add ID` fetches the config.json of one that it does not know.",
    )
    parser.add_argument(
        "word", nargs="?", default="", metavar="WORD|ID|PATH", help="part of a name, an id, a folder with a config.json"
    )
    parser.add_argument("--hf", action="store_true", help="ask the installed transformers about a configuration (extra [hf])")
    parser.add_argument("--format", choices=("full", "json"), default="full")
    options = parser.parse_args(arguments)
    found = matching(options.word)
    known = _looked_up(options.word)
    if len(found) == 1 and not known.exact:
        known = _looked_up(found[0])
    if options.word and (len(found) <= 1 or known.exact):
        show(options.word, asked(known) if options.hf else known, options.format)
    elif options.format == "json":
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        sys.stdout.write("".join(name + "\n" for name in found))
    return 0


def _looked_up(name: str) -> Lookup:
    try:
        return lookup(name, overrides=Configs().settings_for(".").models)
    except ConfigError as error:
        raise Failure(str(error)) from None


def asked(known: Lookup) -> Lookup:
    """The look-up with what the installed transformers makes of the configuration."""
    from memlint.models import hf

    try:
        return hf.asked(known)
    except hf.NotInstalled as error:
        raise Failure(str(error)) from None


def show(name: str, known: Lookup, form: str = "full") -> None:
    """One model on standard output; an unknown one ends the command with what it may be instead."""
    shape = known.architecture
    if shape is None:
        close = f"; did you mean {', '.join(known.suggestions[:3])}?" if known.suggestions else ""
        fetch = f"; `memlint models add {name}` fetches its config.json" if is_hub_id(name) else ""
        raise Failure(f"no model matches {name!r}{close}{fetch}")
    if form == "json":
        sys.stdout.write(json.dumps(document(known), indent=2, default=str) + "\n")
        return
    from memlint.memory.families import PAGES

    lines = describe(known)
    if shape.model_type not in PAGES:
        lines.append(f"  no estimate for the type {shape.model_type!r} yet: parameters only, activations are not known")
    sys.stdout.write("".join(plain(line) + "\n" for line in lines))
