"""`memlint facts`: what memlint understood, each value with its status and where it comes from."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from memlint.cli.arguments import Parser
from memlint.cli.options import add_formats, add_settings, configs, over_settings, write_file
from memlint.cli.session import Read, Session, from_stdin, gather
from memlint.facts import TrainingRun
from memlint.paths import text_of
from memlint.report.facts import render_full, render_json
from memlint.report.style import Style, for_stream
from memlint.source import ReadError
from memlint.versions import NEWEST, pins_inside, versions_for


def run(arguments: Sequence[str]) -> int:
    """Print the facts of the paths' runs; 2 when a named input cannot be read."""
    parser = Parser("facts", "What memlint understood of a training run, and where each value comes from.")
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="scripts, notebooks, launch scripts, configs; - is standard input"
    )
    add_formats(parser, ("full", "json"))
    add_settings(parser)
    parser.add_argument("--stdin-filename", metavar="NAME", help="the name to treat standard input as")
    options = parser.parse_args(arguments)
    paths, texts = from_stdin(options.paths, options.stdin_filename)
    session = Session(configs(options), over_settings(options), texts)
    inputs = gather(paths, session)
    runs: list[TrainingRun] = []
    errors: list[ReadError] = []
    versions: dict[tuple[str, str, str], None] = {}
    for path in inputs.files:
        found = session.read(path)
        runs += found.runs
        errors += session.troubles(found) if path in inputs.named else ()
        if found.runs:
            versions.update(dict.fromkeys(_in_force(path, found)))
    for name, file in options.format or [("full", None)]:
        style = Style() if file else for_stream(sys.stdout)
        text = render_json(runs, errors) if name == "json" else render_full(runs, errors, list(versions), style)
        if file:
            write_file(file, text)
        else:
            sys.stdout.write(text)
    return 2 if errors else 0


def _in_force(path: str, found: Read) -> list[tuple[str, str, str]]:
    """The libraries whose defaults the runs took, with the version that counts and the place that says so."""
    try:
        inside = pins_inside(text_of(path, errors="replace"))
    except OSError:
        inside = {}
    versions = versions_for(path, {**inside, **found.settings.versions})
    notes = " ".join(origin.note for run in found.runs for fact in run.facts.values() for origin in fact.origin)
    libraries = [name for name in {**NEWEST, **versions.pins} if f"{name} " in notes]
    return [(name, *versions.of(name)) for name in libraries]
