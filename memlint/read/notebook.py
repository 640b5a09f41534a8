"""Notebooks: code cells as one Python program with a map back to the cells, and the shell lines among them.

IPython's syntax as in IPython 9: line magics (`%pip`), cell magics (`%%bash`), `!command`, `name = !command`, `?help`.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from memlint.source import Places, ReadError, Source, Span
from memlint.typed import Any, NamedTuple

MAX_CELLS = 5000
PYTHON_MAGICS = frozenset({"capture", "time", "timeit", "prun", "python", "python3", "pypy", "debug", "memit", "mprun"})
"""Cell magics whose body is Python that runs."""
SHELL_MAGICS = frozenset({"bash", "sh", "script", "shell", "!", "system", "sx"})
LINE_MAGIC = re.compile(r"^([ \t]*)(?:[\w.,\[\] ]+=[ \t]*)?(%(?=[A-Za-z%])|!)(.*)$")
TIMED = re.compile(r"^([ \t]*)%(?:time|timeit|prun|memit)(?:[ \t]+-[\w]+(?:[ \t]+\d+)?)*[ \t]+(?=\S)")

AUTOMAGIC = re.compile(r"(?:pip|conda|mamba|uv|cd|ls|cat|cp|mv|rm|mkdir|rmdir|man|more|less)[ \t]+[^\s=(.\[,+*/]")
"""A line magic without its sign, which IPython takes where it is all of a cell (`IPython/core/prefilter.py`: one line only)."""


class ShellText(NamedTuple):
    """Shell text of a cell. `kind` is `line` (`!command`, in which `{name}` and `$name` are Python variables), `cell` (`%%bash`),
    `cd` (`%cd`), `run` (`%run script.py words`) or `env` (`%env NAME=value`). `line` and `column` say where it starts in its cell.
    """

    kind: str
    text: str
    cell: int
    line: int
    column: int


class CellFile(NamedTuple):
    """A file that a `%%writefile` cell writes; its text starts in line 2 of the cell."""

    path: str
    text: str
    cell: int
    append: bool = False


@dataclass(slots=True)
class Notebook:
    """A notebook after reading. `program` is the text of all Python cells; `place` maps its lines to cells."""

    path: str
    program: str = ""
    shell: list[ShellText] = field(default_factory=list)
    files: list[CellFile] = field(default_factory=list)
    gpu: str = ""
    """The accelerator that the notebook's metadata asks for, as Colab or Kaggle write it."""
    _starts: list[int] = field(default_factory=list)
    _cells: list[int] = field(default_factory=list)

    def place(self, span: Span) -> Span:
        """A place in `program` as a place in a cell."""
        if span.path != self.path or span.cell or not self._starts:
            return span
        index = max(bisect_right(self._starts, span.line) - 1, 0)
        first = self._starts[index]
        end = max(span.end_line - first + 1, 0) if span.end_line else 0
        return Span(span.path, span.line - first + 1, span.column, end, span.end_column, self._cells[index])

    def python_cells(self) -> Iterator[tuple[int, str]]:
        """Each Python cell: its first line in `program`, and its text."""
        lines = self.program.split("\n")
        for index, first in enumerate(self._starts):
            end = self._starts[index + 1] if index + 1 < len(self._starts) else len(lines) + 1
            yield first, "\n".join(lines[first - 1 : end - 1])

    def without(self, cell: int, program: str) -> str:
        """The program with the lines of a cell blanked, which leaves the places of the others."""
        if cell not in self._cells:
            return program
        index = self._cells.index(cell)
        lines = program.split("\n")
        end = self._starts[index + 1] if index + 1 < len(self._starts) else len(lines) + 1
        lines[self._starts[index] - 1 : end - 1] = [""] * (end - self._starts[index])
        return "\n".join(lines[: len(program.split("\n"))])


def read_notebook(source: Source) -> Notebook:
    """The cells of a notebook. Raises `ReadError` when the text is not a notebook."""
    try:
        content = json.loads(source.text)
    except json.JSONDecodeError as error:
        raise ReadError(f"not a valid notebook: {error.msg}", source.path, *Places(source.text).seen(error.pos)) from None
    except (RecursionError, ValueError):
        raise ReadError("not a valid notebook: nested too deeply", source.path) from None
    cells = _cells(content)
    if cells is None:
        raise ReadError("not a valid notebook: no list of cells", source.path)
    notebook = Notebook(source.path, gpu=_accelerator(content))
    lines: list[str] = []
    for number, cell in enumerate(cells[:MAX_CELLS], 1):
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            _read_cell(notebook, number, cell_text(cell), lines)
    notebook.program = "\n".join(lines) + "\n" if lines else ""
    return notebook


def _cells(content: Any) -> list[Any] | None:
    """The cells of format 4, or of the first worksheet of format 3."""
    if not isinstance(content, dict):
        return None
    cells = content.get("cells")
    if cells is None and isinstance(content.get("worksheets"), list):
        sheets = [sheet for sheet in content["worksheets"] if isinstance(sheet, dict)]
        cells = sheets[0].get("cells") if sheets else []
    return cells if isinstance(cells, list) else None


def cell_text(cell: dict[str, Any]) -> str:
    """The source of a cell, which is a text or a list of lines."""
    text = cell.get("source", cell.get("input", ""))
    text = "".join(str(line) for line in text) if isinstance(text, list) else str(text)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _accelerator(content: dict[str, Any]) -> str:
    """`metadata.colab.gpuType` ("A100", "T4") or `metadata.kaggle.accelerator` ("nvidiaTeslaT4")."""
    metadata = content.get("metadata")
    for owner, key in (("colab", "gpuType"), ("kaggle", "accelerator")):
        block = metadata.get(owner) if isinstance(metadata, dict) else None
        name = block.get(key) if isinstance(block, dict) else None
        if isinstance(name, str) and name.lower() not in ("", "none", "gpu", "cpu"):
            return name[:100]
    return ""


def _read_cell(notebook: Notebook, number: int, text: str, lines: list[str]) -> None:
    rows = text.split("\n")
    head = next((index for index, row in enumerate(rows) if row.strip()), None)
    if head is None:
        return
    if AUTOMAGIC.match(rows[head]) and not any(row.strip() for row in rows[head + 1 :]):
        rows[head] = f"%{rows[head]}"
    magic, _, rest = rows[head].strip()[2:].partition(" ") if rows[head].startswith("%%") else ("", "", "")
    if rows[head].startswith("%%") and magic not in PYTHON_MAGICS:
        body = "\n".join(rows[head + 1 :])
        if magic in SHELL_MAGICS:
            notebook.shell.append(ShellText("cell", body, number, head + 2, 1))
        elif magic in ("writefile", "file"):
            names = [word for word in rest.split() if not word.startswith("-")]
            if names:
                notebook.files.append(CellFile(names[-1].strip("\"'"), body + "\n", number, "-a" in rest.split()))
        return
    if rows[head].startswith("%%"):
        rows[head] = ""
    notebook._starts.append(len(lines) + 1)
    notebook._cells.append(number)
    lines.extend(_python_rows(notebook, number, rows))


def _python_rows(notebook: Notebook, number: int, rows: list[str]) -> list[str]:
    """The rows with IPython's lines blanked, so that positions stay."""
    found: list[str] = []
    index = 0
    while index < len(rows):
        row = rows[index]
        timed = TIMED.match(row)
        if timed:
            # The spaces keep the columns; a statement may not be indented, so it moves to where the magic began.
            row = timed.group(1) + row[timed.end() :]
        match = None if _continues(found) else LINE_MAGIC.match(row)
        if match is None:
            help_line = re.match(r"^[ \t]*\?|^[ \t]*[\w.]+\?{1,2}[ \t]*$", row)
            found.append("" if help_line else row)
            index += 1
            continue
        last = index
        while rows[last].endswith("\\") and last + 1 < len(rows):
            last += 1
        command = "\n".join(rows[index : last + 1])
        sign, start = match.group(2), match.start(3)
        if sign == "!" or match.group(3).startswith(("sh ", "sx ", "system ")):
            text = command[start:]
            skip = len(text) - len(text.lstrip("!"))
            notebook.shell.append(ShellText("line", text[skip:], number, index + 1, start + 1 + skip))
        else:
            magic, blank, rest = command[start:].partition(" ")
            kind = {"cd": "cd", "env": "env", "set_env": "env", "run": "run"}.get(magic)
            if kind and blank:
                column = start + 1 + len(magic) + 1
                notebook.shell.append(ShellText(kind, rest, number, index + 1, column))
        indent = match.group(1)
        found.append(f"{indent}pass" if indent else "")
        found.extend([""] * (last - index))
        index = last + 1
    return found


def _continues(rows: list[str]) -> bool:
    """Whether the rows so far end inside brackets, a string or after a backslash, so that the next row is no magic."""
    for index in range(len(rows) - 1, -1, -1):
        if rows[index].strip():
            row = rows[index].strip()
            return row.endswith((",", "(", "[", "{", "\\", "+", "=")) and not row.startswith("#")
    return False
