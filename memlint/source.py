"""The one place where files are read: a `Source` is a file's text and what kind of file it is; a `Span` is a place in it.

Lines and columns are 1-based everywhere; `end_column` is exclusive. Columns count characters, not bytes.
"""

from __future__ import annotations

import codecs
import os
import re
from bisect import bisect_right
from enum import Enum
from stat import S_ISREG

from memlint.typed import NamedTuple

MAX_BYTES = 8 * 1024 * 1024
"""Larger files are refused: a hand-written config or script is never that big, and the hook must stay quick."""


LINE_END = r"\r\n|\n|\r"
"""Where editors end a line (not at form feeds or Unicode separators, as `splitlines` and libyaml do)."""


class Kind(str, Enum):
    """What a file is, by its name (a first guess: readers recognise dialects by content)."""

    PYTHON = "python"
    NOTEBOOK = "notebook"
    SHELL = "shell"
    YAML = "yaml"
    JSON = "json"
    TOML = "toml"


SUFFIXES = {
    ".py": Kind.PYTHON,
    ".ipynb": Kind.NOTEBOOK,
    ".sh": Kind.SHELL,
    ".bash": Kind.SHELL,
    ".slurm": Kind.SHELL,
    ".sbatch": Kind.SHELL,
    ".mk": Kind.SHELL,
    ".dockerfile": Kind.SHELL,
    ".yaml": Kind.YAML,
    ".yml": Kind.YAML,
    ".json": Kind.JSON,
    ".conf": Kind.JSON,
    ".toml": Kind.TOML,
}


class ReadError(Exception):
    """An input that cannot be read, with the place and a one-line message for a person. `partial`: the rest of it was read."""

    def __init__(self, message: str, path: str, line: int = 1, column: int = 1, *, partial: bool = False) -> None:
        super().__init__(message)
        self.message, self.path, self.line, self.column, self.partial = message, path, line, column, partial


class Span(NamedTuple):
    """A place in a file. `cell` is the 1-based notebook cell; lines then count inside the cell."""

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0
    cell: int = 0


class Source(NamedTuple):
    """A file's text. `path` is as the user wrote it (posix separators); it is what findings print."""

    path: str
    kind: Kind
    text: str

    @property
    def lines(self) -> list[str]:
        """The lines without their line ends, split as editors do (`\\n`, `\\r\\n`, `\\r`)."""
        return re.split(LINE_END, self.text)


class Places:
    """Where the lines of a text begin: turns a line and column (1-based, in characters) into an offset and back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(match.end() for match in re.finditer(LINE_END, text))]

    def offset(self, line: int, column: int) -> int:
        """The offset of a place; a place outside the text goes to its nearest end."""
        if not 1 <= line <= len(self.starts):
            return 0 if line < 1 else len(self.text)
        return min(self.starts[line - 1] + max(column, 1) - 1, len(self.text))

    def range(self, span: Span) -> tuple[int, int]:
        """Start and end offset of a span; a span without an end is empty."""
        start = self.offset(span.line, span.column)
        return start, self.offset(span.end_line, span.end_column) if span.end_line else start

    def place(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column of an offset."""
        line = self.line_of(offset)
        return line, offset - self.starts[line - 1] + 1

    def seen(self, offset: int) -> tuple[int, int]:
        """The place of an offset, but never behind the last line that holds something: the text ends there for a reader."""
        return self.place(min(offset, len(self.text.rstrip("\r\n"))))

    def span(self, path: str, start: int, end: int) -> Span:
        """The place of the characters `start` to `end` (exclusive), in a file of that name."""
        return Span(path, *self.place(start), *self.place(end))

    def line_of(self, offset: int) -> int:
        """The 1-based line that holds an offset."""
        return bisect_right(self.starts, offset)

    def line_end(self, offset: int) -> int:
        """The offset at which the line that holds `offset` ends, before its line end."""
        match = re.compile(LINE_END).search(self.text, offset)
        return match.start() if match else len(self.text)

    def newline(self) -> str:
        """The line end of this text: that of its first line."""
        match = re.search(LINE_END, self.text)
        return match.group() if match else "\n"


def kind_of(path: str) -> Kind | None:
    """The kind of a file by its name, or None when memlint does not read such files."""
    name = os.path.basename(path).lower()
    known = SUFFIXES.get(os.path.splitext(name)[1])
    return Kind.SHELL if known is None and name.startswith(("makefile", "gnumakefile", "dockerfile")) else known


def read(path: str, kind: Kind | None = None) -> Source:
    """Read a file as text.

    UTF-8 (with or without BOM), UTF-16 with BOM, or the encoding of a Python coding cookie. Raises `ReadError` for a
    missing, oversized, binary or undecodable file.
    """
    try:
        if os.path.isdir(path):
            raise ReadError("is a directory", path)
        found = os.stat(path)
        if not S_ISREG(found.st_mode):
            raise ReadError("not a regular file: a pipe or a device may have no end", path)
        if found.st_size > MAX_BYTES:
            raise ReadError(f"larger than {MAX_BYTES // 2**20} MiB, not read", path)
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise ReadError("no such file", path) from None
    except OSError as error:
        raise ReadError(error.strerror or str(error), path) from None
    kind = kind or kind_of(path)
    if kind is None:
        raise ReadError("not a file that memlint reads (.py, .ipynb, .sh, .slurm, .yaml, .json, .toml)", path)
    return Source(path, kind, decode(data, path, kind))


def decode(data: bytes, path: str, kind: Kind) -> str:
    """Bytes to text, keeping line ends; raises `ReadError` for binary or undecodable content."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in data[:8192]:
        raise ReadError("binary file", path)
    else:
        encoding = (_coding_cookie(data) if kind is Kind.PYTHON else None) or "utf-8-sig"
    try:
        return data.decode(encoding)
    except LookupError:
        raise ReadError(f"unknown encoding {encoding!r} in the coding cookie", path) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ReadError(f"not valid {encoding.removesuffix('-sig').upper()} text", path, line) from None


def _coding_cookie(data: bytes) -> str | None:
    """The encoding named in the first two lines (PEP 263)."""
    for line in data.split(b"\n", 2)[:2]:
        match = b"coding" in line and re.match(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", line)
        if match:
            name = match.group(1).decode("ascii")
            return "utf-8-sig" if name.lower().replace("_", "-") in {"utf-8", "utf8"} else name
    return None
