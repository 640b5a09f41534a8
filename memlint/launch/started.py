"""The runs of programs that a Python script starts (`memlint.frameworks.jobs` puts their words together)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import islice

from memlint.facts import Extraction, Fact, Status, TrainingRun
from memlint.frameworks.jobs import Started
from memlint.launch.combine import merged
from memlint.launch.command import Command
from memlint.launch.read import launched, read_command, walk
from memlint.paths import posix
from memlint.project import Project
from memlint.read.shell import Invocation, Joined, Piece, Script, ShellError, Value
from memlint.source import ReadError, Span
from memlint.versions import Pin

MAX_STARTED = 8
"""Programs of one script that are followed."""


def read_started(started: Iterable[Started], path: str, project: Project) -> Extraction:
    """The training runs that a script starts in other programs, each at the place of the call."""
    ways: dict[Span, list[tuple[TrainingRun, ...]]] = {}
    errors: list[ReadError] = []
    for start in islice(started, MAX_STARTED):
        found = _job(start, path, project) if start.job else _process(start, path, project)
        ways.setdefault(start.span, []).append(tuple(run._replace(span=start.span, path=path) for run in found.runs))
        errors.extend(found.errors)
    return Extraction(tuple(run for alternatives in ways.values() for run in merged(alternatives)), tuple(dict.fromkeys(errors)))


def _job(start: Started, path: str, project: Project) -> Extraction:
    program, *argv = start.words
    pins = {library: Pin(version, "the job's image") for library, version in start.pins.items()}
    folder = posix(os.path.join(start.directory, str(program.value))) if start.directory else str(program.value)
    command = Command(folder, tuple(argv), start.span, start.env, start.job, path=path)
    return read_command(command, project.with_pins(pins))


def _process(start: Started, path: str, project: Project) -> Extraction:
    script = Script()
    if not start.shell:
        script.invocations.append(Invocation(start.words, start.env, start.span, start.directory))
        return launched(script, {}, project, path)
    text = start.words[0]
    piece = Piece(str(text.value), status=text.status, chain=text.origin)
    try:
        script = walk(Joined((piece,)), path, project, _environment(start.env), start.directory)
    except ShellError:
        return Extraction()
    return launched(script, {}, project, path)


def _environment(env: Mapping[str, Fact]) -> dict[str, Value]:
    known = {name: fact for name, fact in env.items() if fact.known}
    return {name: (Piece(str(fact.value), status=Status.FIXED, chain=fact.origin),) for name, fact in known.items()}
