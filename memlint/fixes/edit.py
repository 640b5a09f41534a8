"""Text edits: what a fix is made of, and how it reaches the disk.

An `Edit` replaces a range of characters of one file's text (`Source.text`: decoded, without BOM, line ends kept). Edits
never overlap, so their order does not matter. Writing keeps the file's encoding, BOM, mode and line ends, and replaces
the file in one step: a reader sees the old file or the new one, never a half of it.
"""

from __future__ import annotations

import codecs
import itertools
import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memlint.source import Kind, Places, ReadError, Source, Span, decode, kind_of


class WriteError(Exception):
    """A fix that could not be written; the message is for a person and names the file."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replace the characters `start` to `end` (exclusive) of a file's text; an insertion has `start == end`."""

    path: str
    start: int
    end: int
    replacement: str

    def span(self, text: str) -> Span:
        """The place of the replaced characters in the text that the edit is for."""
        return Places(text).span(self.path, self.start, self.end)


def overlap(edits: Iterable[Edit]) -> bool:
    """True when two different edits touch the same characters, or insert at the same place."""
    ordered = sorted(set(edits))
    return any(a.path == b.path and (b.start < a.end or b.start == a.start) for a, b in itertools.pairwise(ordered))


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits (of one file) made; `ValueError` when they overlap or leave the text."""
    ordered = sorted(set(edits))
    if overlap(ordered) or any(not 0 <= e.start <= e.end <= len(text) for e in ordered):
        raise ValueError("edits overlap or lie outside the text")
    for edit in reversed(ordered):
        text = text[: edit.start] + edit.replacement + text[edit.end :]
    return text


def between(path: str, before: str, after: str) -> tuple[Edit, ...]:
    """The edits, each of whole lines, that lead from one text to another."""
    import difflib

    old, new = _lines(before), _lines(after)
    starts = list(itertools.accumulate((len(line) for line in old), initial=0))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return tuple(
        Edit(path, starts[i1], starts[i2], "".join(new[j1:j2])) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    )


def diff(before: Source, after: str) -> str:
    """A unified diff that `patch` understands; empty when nothing changed."""
    import difflib

    lines = difflib.unified_diff(
        _lines(before.text), _lines(after), f"a/{before.path.lstrip('/')}", f"b/{before.path.lstrip('/')}"
    )
    return "".join(line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines with their ends, split only where an editor would (not at form feeds, as `splitlines` does)."""
    return re.findall(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z", text)


def write(changed: Mapping[str, tuple[str, str]]) -> None:
    """Write files, each given as (text that was read, text to write); all of them or none.

    Raises `WriteError` when a file changed since it was read, is read-only, cannot hold the new text in its encoding,
    or cannot be written; every file is then as it was before.
    """
    prepared: list[tuple[Path, Path, bytes]] = []
    replaced: list[tuple[Path, bytes]] = []
    try:
        for path, (before, after) in changed.items():
            prepared.append(_prepare(path, before, after))
        for target, temporary, old in prepared:
            _replace(temporary, target)
            replaced.append((target, old))
    except WriteError:
        for target, old in replaced:
            with suppress(OSError):
                target.write_bytes(old)
        raise
    finally:
        for _, temporary, _ in prepared:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _prepare(path: str, before: str, after: str) -> tuple[Path, Path, bytes]:
    """The real file, a complete temporary file beside it, and the old bytes."""
    try:
        target = Path(path).resolve(strict=True)
        old = target.read_bytes()
        mode = stat.S_IMODE(target.stat().st_mode)
    except OSError as error:
        raise WriteError(f"{path}: cannot be fixed: {error.strerror or error}") from None
    if not mode & 0o222:
        raise WriteError(f"{path}: cannot be fixed: the file is read-only")
    kind = kind_of(path) or Kind.PYTHON
    try:
        if decode(old, path, kind) != before:
            raise WriteError(f"{path}: not fixed: the file changed since it was read")
        new = encode(after, old, kind)
    except ReadError as error:
        raise WriteError(f"{path}: not fixed: {error.message}") from None
    except UnicodeEncodeError as error:
        raise WriteError(f"{path}: not fixed: its encoding {error.encoding} cannot hold the new text") from None
    import tempfile

    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".memlint", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise WriteError(f"{path}: cannot be fixed: {error.strerror or error}") from None
    return target, temporary, old


def _replace(temporary: Path, target: Path) -> None:
    """Put the finished file in the place of the old one; on Windows a file that is open elsewhere refuses."""
    try:
        os.replace(temporary, target)  # the one call that is atomic on every platform
    except OSError as error:
        raise WriteError(f"{target}: cannot be fixed: {error.strerror or error}") from None


def encode(text: str, old: bytes, kind: Kind) -> bytes:
    """Text to bytes in the encoding, and with the BOM, of the file's `old` bytes; the inverse of `source.decode`."""
    for bom, encoding in (
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF8, "utf-8"),
    ):
        if old.startswith(bom):
            return bom + text.encode(encoding)
    if kind is Kind.PYTHON:
        import io
        import tokenize

        return text.encode(tokenize.detect_encoding(io.BytesIO(old).readline)[0])
    return text.encode("utf-8")
