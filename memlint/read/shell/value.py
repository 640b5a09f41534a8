"""Values of shell variables: text that remembers, piece by piece, where it was written and how sure it is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from memlint.facts import Fact, Origin, Status
from memlint.source import Span

MAX_TEXT = 200_000
MAX_PIECES = 4000
"""Longer values are unknown: no launch line is that long, and a script can double a text with every line."""
MAX_CHAIN = 4
HOLE = "\ue000"
"""Stands for an unknown piece where text has to be parsed again (`eval`, `bash -c`)."""


FILES = (".py", ".sh", ".bash", ".yaml", ".yml", ".json", ".toml")
"""Ends of files that a launch may lead to."""


class Lines:
    """Offsets of a text to places in a file. `cell`, `line` and `column` say where the text starts in it."""

    def __init__(self, path: str, text: str, *, cell: int = 0, line: int = 1, column: int = 1) -> None:
        self.path, self.text, self.cell = path, text, cell
        self._line, self._column = line, column
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def _place(self, offset: int) -> tuple[int, int]:
        row = bisect_right(self._starts, offset) - 1
        column = offset - self._starts[row]
        return self._line + row, column + (self._column if row == 0 else 1)

    def pieces(self, start: int, end: int) -> Value:
        """The characters `start:end` as a value that remembers its place."""
        return (Piece(self.text[start:end], self, start),)

    def span(self, start: int, end: int) -> Span:
        """The place of the characters `start:end`."""
        line, column = self._place(start)
        end_line, end_column = self._place(max(start, end))
        return Span(self.path, line, column, end_line, end_column, self.cell)


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of characters with one origin. `at` is its offset in `lines`, -1 when it was computed; `raw` is an unknown's text."""

    text: str
    lines: Lines | None = None
    at: int = -1
    status: Status = Status.FIXED
    reason: str = ""
    quoted: bool = False
    external: bool = False
    """Unknown because the file never sets it: empty unless the caller or the environment sets it."""
    chain: tuple[Origin, ...] = ()
    """For a computed piece its origins, for a written one the links that led from there to here."""

    def cut(self, start: int, end: int) -> Piece:
        """The characters `start:end` of this piece."""
        at = self.at + start if self.at >= 0 else -1
        return replace(self, text=self.text[start:end], at=at)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The place that sets the characters, then the links."""
        if self.lines is not None and self.at >= 0:
            return (Origin(self.lines.span(self.at, self.at + len(self.text))), *self.chain)
        return self.chain


Value = tuple[Piece, ...]
"""A string."""
Array = list[Value]
"""An indexed array; variables hold a `Value` or an `Array`."""


def bounded(pieces: list[Piece]) -> Value:
    """The pieces as a value, or an unknown one when they are too many or too long."""
    if len(pieces) > MAX_PIECES or sum(len(piece.text) for piece in pieces) > MAX_TEXT:
        return unknown_value("the text is too long", "...", None, -1)
    return tuple(pieces)


def text_of(value: Value) -> str | None:
    """The characters, or None when a piece is unknown."""
    if any(piece.status is Status.UNKNOWN for piece in value):
        return None
    return "".join(piece.text for piece in value)[:MAX_TEXT]


def known_prefix(value: Value) -> str:
    """The characters before the first unknown piece."""
    prefix = ""
    for piece in value:
        if piece.status is Status.UNKNOWN:
            break
        prefix += piece.text
    return prefix


def raw_text(value: Value) -> str:
    """The characters, with each unknown piece as it was written (`${BS}`)."""
    return "".join(piece.text for piece in value)


def status_of(values: Iterable[Piece]) -> Status:
    """The weakest status of the pieces."""
    statuses = {piece.status for piece in values}
    for status in (Status.UNKNOWN, Status.DEFAULT):
        if status in statuses:
            return status
    return Status.FIXED


def computed(text: str, *parts: Value, note: str = "") -> Value:
    """Text computed from values: it has their origins and their weakest status."""
    pieces = [piece for part in parts for piece in part]
    origins = tuple(dict.fromkeys(origin for piece in pieces for origin in piece.origins))[: MAX_CHAIN + 1]
    if note:
        origins = (*origins, Origin(None, note))
    return (Piece(text[:MAX_TEXT], status=status_of(pieces), chain=origins),)


def unknown_value(reason: str, raw: str, lines: Lines | None, at: int, *, external: bool = False) -> Value:
    """A value that cannot be known; `raw` is how it is written."""
    return (Piece(raw, lines, at, Status.UNKNOWN, reason, external=external),)


def placed(value: Value) -> Value:
    """`$WORKDIR/train.py` of a variable that nothing sets: a path with that name in front, to be looked for by its end."""
    if len(value) < 2 or value[0].status is not Status.UNKNOWN or not value[0].external or status_of(value[1:]) is Status.UNKNOWN:
        return value
    end = raw_text(value[1:])
    if not end.startswith("/") or not end.endswith(FILES) or not value[0].text.startswith("$") or " " in end:
        return value
    return (Piece(raw_text(value), status=Status.DEFAULT, chain=value[0].origins),)


def softened(value: Value) -> Value:
    """The value as an overridable default; an empty one too."""
    if not value:
        return (Piece("", status=Status.DEFAULT),)
    return tuple(replace(p, status=Status.DEFAULT) if p.status is Status.FIXED else p for p in value)


def linked(value: Value, span: Span, note: str) -> Value:
    """The value after one more link (a variable's use)."""
    return tuple(p if len(p.chain) >= MAX_CHAIN else replace(p, chain=(*p.chain, Origin(span, note))) for p in value)


def fact_of(value: Value, span: Span) -> Fact:
    """The value as a fact over text. An unknown one keeps the text before its unknown part as `value`."""
    status = status_of(value)
    if status is Status.UNKNOWN:
        unknown = next(p for p in value if p.status is Status.UNKNOWN)
        return Fact(known_prefix(value), status, (Origin(span), *unknown.origins), reason=unknown.reason)
    text = "".join(piece.text for piece in value)
    written = [piece for piece in value if piece.text]
    contiguous = all(
        a.lines is b.lines and a.at >= 0 and b.at == a.at + len(a.text) and a.chain == b.chain for a, b in pairwise(written)
    )
    if written and contiguous and written[0].lines is not None and written[0].at >= 0:
        first, last = written[0], written[-1]
        place = written[0].lines.span(first.at, last.at + len(last.text))
        return Fact(text, status, (Origin(place), *first.chain))
    origins = [origin for piece in written for origin in piece.origins]
    return Fact(text, status, tuple(dict.fromkeys((Origin(span), *origins)))[: MAX_CHAIN + 1])


class Joined:
    """A text put together from pieces, to be read again; maps its characters back to the pieces.

    An unknown piece is one `HOLE` in shell text (`eval`), and stands as written (`${BS}`) in a file that the script writes.
    """

    def __init__(self, value: Value, *, holes: bool = True) -> None:
        self._pieces: list[Piece] = []
        self._starts: list[int] = []
        texts: list[str] = []
        length = 0
        for piece in value:
            text = HOLE if holes and piece.status is Status.UNKNOWN else piece.text
            if not text:
                continue
            self._pieces.append(piece)
            self._starts.append(length)
            texts.append(text)
            length += len(text)
        self.text = "".join(texts)

    def pieces(self, start: int, end: int) -> Value:
        """The pieces behind the characters `start:end`."""
        found: list[Piece] = []
        index = max(bisect_right(self._starts, start) - 1, 0)
        while start < end and index < len(self._pieces):
            piece, base = self._pieces[index], self._starts[index]
            if piece.status is Status.UNKNOWN:
                found.append(piece)
                start = self._starts[index + 1] if index + 1 < len(self._starts) else len(self.text)
            else:
                stop = min(end, base + len(piece.text))
                found.append(piece.cut(start - base, stop - base))
                start = stop
            index += 1
        return tuple(found)

    def span(self, start: int, end: int) -> Span | None:
        """The place of the characters, from the first written piece among them to the last."""
        places = [o.span for p in self.pieces(start, end) for o in p.origins[:1] if o.span is not None]
        if not places:
            return None
        first, last = places[0], places[-1]
        if first.path != last.path or last < first:
            return first
        return Span(first.path, first.line, first.column, last.end_line, last.end_column, first.cell)
