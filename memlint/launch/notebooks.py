"""The training runs of a notebook: its Python program, and the launches in `!` lines and `%%bash` cells."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from memlint.facts import Extraction, Fact, Status, TrainingRun, fixed
from memlint.launch.cells import Cells
from memlint.launch.combine import merged
from memlint.launch.read import launched, walk
from memlint.launch.relocate import Origins, moved, relocated
from memlint.paths import posix
from memlint.project import Project
from memlint.read.notebook import Notebook, ShellText, read_notebook
from memlint.read.shell import Joined, Lines, Piece, ShellError, Value
from memlint.source import Kind, ReadError, Source, Span, kind_of
from memlint.versions import pins_inside

VARIABLE = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")
"""What IPython replaces in a `!` line by the value of a Python variable."""


def read_notebook_runs(source: Source, project: Project) -> Extraction:
    """Every training run of a notebook, in the order of its cells. Raises `ReadError` when it is no notebook."""
    notebook = read_notebook(source)
    project = project.with_pins(pins_inside(source.text))
    written, origins = _files(notebook)
    if written:
        project = project.with_texts(written)
    runs, errors = _python(notebook, project)
    started = _shell(notebook, project)
    found = [relocated(run, origins) for run in (*runs, *started.runs)]
    found.sort(key=lambda run: (run.span.cell, run.span.line))
    card = _card(notebook)
    if card is not None:
        found = [run if "hardware.gpu" in run.facts else run.with_facts({"hardware.gpu": card}) for run in found]
    return Extraction(tuple(found), (*errors, *started.errors))


def _files(notebook: Notebook) -> tuple[dict[str, Source], dict[str, Origins]]:
    """The files that `%%writefile` cells write, and where their text stands."""
    base = os.path.dirname(notebook.path)
    sources: dict[str, Source] = {}
    origins: dict[str, Origins] = {}
    for file in notebook.files:
        kind = kind_of(file.path)
        name = posix(os.path.join(base, file.path))
        if kind is None or file.append:
            continue
        sources[name] = Source(name, kind, file.text)
        origins[name] = Lines(notebook.path, file.text, cell=file.cell, line=2)
    return sources, origins


def _card(notebook: Notebook) -> Fact | None:
    """The accelerator of the notebook's metadata; Kaggle writes `nvidiaTeslaT4`."""
    from memlint.gpus import find

    name = notebook.gpu.removeprefix("nvidiaTesla").removeprefix("nvidia")
    if not name or find(name) is None:
        return None
    return fixed(name, Span(notebook.path, 1), "the notebook's metadata")


# Python ------------------------------------------------------------------------------------------------------------------


def _python(notebook: Notebook, project: Project) -> tuple[list[TrainingRun], list[ReadError]]:
    """The runs of the cells as one program. A cell that is not Python is left out, as it fails alone when it runs."""
    from memlint.frameworks import read_script

    refused: dict[int, str] = {}
    program = notebook.program
    if not program.strip():
        return [], []
    for _ in range(20):
        found = read_script(Source(notebook.path, Kind.PYTHON, program), project)
        if not found.errors:
            break
        error = found.errors[0]
        place = notebook.place(Span(error.path, error.line, error.column))
        if error.path != notebook.path:
            return [moved(run, notebook.place) for run in found.runs], [error]
        refused.setdefault(place.cell, f"line {place.line}: {error.message}")
        shorter = notebook.without(place.cell, program)
        if shorter == program:
            break
        program = shorter
    return [moved(run, notebook.place) for run in found.runs], _refusal(notebook.path, refused)


def _refusal(path: str, refused: dict[int, str]) -> list[ReadError]:
    """One error for all cells that are not Python: notes for people, other languages' code."""
    if not refused:
        return []
    cell, first = min(refused.items())
    if len(refused) == 1:
        return [ReadError(f"cell {cell}, {first}", path, partial=True)]
    *most, last = map(str, sorted(refused))
    return [ReadError(f"cells {', '.join(most)} and {last} are not Python (cell {cell}, {first})", path, partial=True)]


# Shell -------------------------------------------------------------------------------------------------------------------


def _shell(notebook: Notebook, project: Project) -> Extraction:
    """The launches of the shell lines, in order; `%cd` and `%env` last until the end."""
    runs: list[TrainingRun] = []
    errors: list[ReadError] = []
    if not notebook.shell:
        return Extraction()
    cells = Cells(notebook)
    environment = dict(cells.environment)
    directory: str | None = None
    for shell in notebook.shell:
        if cells.is_dead(shell):
            continue
        lines = Lines(notebook.path, shell.text, cell=shell.cell, line=shell.line, column=shell.column)
        if shell.kind == "cd":
            directory = posix(os.path.join(directory or "", shell.text.strip().strip("\"'")))
            continue
        if shell.kind == "env":
            name, value = _setting(shell, lines)
            environment[name] = value
            continue
        ways: list[tuple[TrainingRun, ...]] = []
        for variables in cells.rounds(shell):
            text: Joined | Lines = lines
            if shell.kind == "line":
                text = Joined(_interpolated(lines, variables))
            elif shell.kind == "run":
                text = Joined((Piece("python "), *_interpolated(lines, variables)))
            try:
                script = walk(text, notebook.path, project, environment, directory)
            except ShellError:
                continue  # A line that the shell refuses fails alone when its cell runs.
            found = launched(script, {}, project, notebook.path)
            ways.append(found.runs)
            errors.extend(found.errors)
        runs.extend(merged(ways))
    return Extraction(tuple(runs), tuple(dict.fromkeys(errors)))


def _setting(shell: ShellText, lines: Lines) -> tuple[str, Value]:
    """`%env NAME=value` and `%env NAME value`."""
    match = re.match(r"\s*(\w+)\s*[=\s]\s*(.*?)\s*$", shell.text, re.DOTALL)
    if match is None:
        return shell.text.strip(), ()
    return match.group(1), lines.pieces(match.start(2), match.end(2))


def _interpolated(lines: Lines, variables: Mapping[str, Value | None]) -> Value:
    """A `!` line with Python variables in place; text that is no variable of the notebook is left to the shell."""
    pieces: list[Piece] = []
    start = 0
    for match in VARIABLE.finditer(lines.text):
        name = match.group(1) or match.group(2)
        if name not in variables:
            continue
        pieces.extend(lines.pieces(start, match.start()))
        value = variables[name]
        if value is None:
            reason = f"the Python variable {name} is not a constant"
            value = (Piece(match.group(), lines, match.start(), Status.UNKNOWN, reason),)
        pieces.extend(value)
        start = match.end()
    pieces.extend(lines.pieces(start, len(lines.text)))
    return tuple(piece for piece in pieces if piece.text)
