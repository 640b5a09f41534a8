"""TOML text -> the same `Document` as YAML and JSON give, with spans (TOML 1.0: tables, arrays of tables, inline tables, dotted keys).

A table that is opened several times (`[a]`, later `[a.b]`) is one mapping whose span covers what is written of it. A key that is
written twice is an error in TOML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from memlint.read.document import MAX_DEPTH, Document, Entry, MappingNode, Node, Scalar, SequenceNode
from memlint.source import Places, ReadError, Source, Span
from memlint.typed import Any, NoReturn

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_LINE_END = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r\n|\n|\r|\Z)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\r?\n)?(?P<long>(?:[^"\\]|\\.|"{1,2}(?!"))*"{0,2})"""'
    r"|'''(?:\r?\n)?(?P<raw>(?:[^']|'{1,2}(?!'))*'{0,2})'''"
    r'|"(?P<basic>(?:[^"\\\r\n]|\\[^\r\n])*)"'
    r"|'(?P<literal>[^'\r\n]*)'",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([btnfre\"\\])|[ \t]*\r?\n\s*)")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}
_TOKEN = re.compile(r"[A-Za-z0-9_+.:-]+(?:[ T]\d\d:\d\d[0-9:.Z+-]*)?")
_FLOAT = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d+|0x[0-9A-Fa-f]+|0o[0-7]+|0b[01]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d")
_WORDS: dict[str, Any] = {"true": True, "false": False, "inf": float("inf"), "+inf": float("inf"), "-inf": float("-inf"),
                          "nan": float("nan"), "+nan": float("nan"), "-nan": float("nan")}  # fmt: skip


@dataclass(slots=True)
class _Table:
    """A table while it is read. `start` and `end` are offsets of what is written of it."""

    start: int
    end: int
    entries: dict[str, tuple[Span, _Table | _Tables | Node]] = field(default_factory=dict)


@dataclass(slots=True)
class _Tables:
    """An array of tables: `[[name]]`."""

    items: list[_Table]


def read_toml(source: Source) -> Document:
    """The document of a TOML text. Raises `ReadError` with the place where the text is not TOML."""
    return _Reader(source).document()


class _Reader:
    def __init__(self, source: Source) -> None:
        self.path, self.text = source.path, source.text
        self.places = Places(source.text)
        self.position = 0

    def document(self) -> Document:
        root = _Table(0, 0)
        table = root
        self.skip(_BLANK)
        while self.position < len(self.text):
            if self.text[self.position] == "[":
                table = self.header(root)
            else:
                self.pair(table, 0)
            if not self.skip(_LINE_END):
                self.fail("expected the end of the line")
            self.skip(_BLANK)
        root.end = len(self.text.rstrip())
        return Document(self.path, self.node(root))

    def header(self, root: _Table) -> _Table:
        """`[a.b]` or `[[a.b]]`: the table that the lines below it belong to."""
        start = self.position
        close = "]]" if self.text.startswith("[[", start) else "]"
        self.position += len(close)
        parts = self.key()
        if not self.text.startswith(close, self.position):
            self.fail(f"expected {close!r}")
        self.position += len(close)
        if close == "]":
            return self.inner(root, parts, start)
        parent = self.inner(root, parts[:-1], start)
        name, span = parts[-1]
        tables = parent.entries.setdefault(name, (span, _Tables([])))[1]
        if not isinstance(tables, _Tables):
            self.fail(f"{name} is not an array of tables")
        tables.items.append(_Table(start, self.position))
        return tables.items[-1]

    def inner(self, table: _Table, parts: list[tuple[str, Span]], start: int) -> _Table:
        """The table under dotted names, made where it is not there yet; of an array of tables the last one."""
        for name, span in parts:
            found = table.entries.setdefault(name, (span, _Table(start, self.position)))[1]
            found = found.items[-1] if isinstance(found, _Tables) else found
            if not isinstance(found, _Table):
                self.fail(f"{name} has a value already")
            found.end = max(found.end, self.position)
            table = found
        return table

    def pair(self, table: _Table, depth: int) -> None:
        """`key = value`."""
        start = self.position
        parts = self.key()
        self.skip(_SPACE)
        if self.peek() != "=":
            self.fail("expected '=' after the key")
        self.position += 1
        self.skip(_SPACE)
        value = self.value(depth + 1)
        inner = self.inner(table, parts[:-1], start)
        name, span = parts[-1]
        if name in inner.entries:
            raise ReadError(f"not valid TOML: the key {name!r} is written twice", self.path, span.line, span.column)
        inner.entries[name] = (span, value)
        table.end = inner.end = self.position

    def key(self) -> list[tuple[str, Span]]:
        """A dotted key: its parts with their places."""
        parts: list[tuple[str, Span]] = []
        while True:
            self.skip(_SPACE)
            start = self.position
            bare = _BARE.match(self.text, start)
            if bare:
                self.position = bare.end()
                name = bare.group()
            elif self.peek() in ("'", '"'):
                name = self.string()
            else:
                self.fail("expected a key")
            parts.append((name, self.span(start)))
            self.skip(_SPACE)
            if self.peek() != ".":
                return parts
            if len(parts) > MAX_DEPTH:
                self.fail("nested too deeply")
            self.position += 1

    def value(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.fail("nested too deeply")
        start = self.position
        if self.peek() == "[":
            return self.array(depth)
        if self.peek() == "{":
            return self.inline(depth)
        if self.peek() in ("'", '"'):
            text = self.string()
            return Scalar(self.span(start), text, text, quoted=True)
        token = _TOKEN.match(self.text, start)
        if token is None:
            self.fail("expected a value")
        value = self.bare(token.group())
        self.position = token.end()
        return Scalar(self.span(start), value, token.group())

    def bare(self, token: str) -> Any:
        """A number, a boolean, or a date (as text)."""
        if token in _WORDS:
            return _WORDS[token]
        digits = re.sub(r"(?<=[0-9A-Fa-f])_(?=[0-9A-Fa-f])", "", token)
        if _INTEGER.fullmatch(digits) and len(digits) < 1000:
            return int(digits, 0) if digits[:2] in ("0x", "0o", "0b") else int(digits)
        if _FLOAT.fullmatch(digits):
            return float(digits)
        if not _DATE.match(token):
            self.fail(f"{token!r} is not a value: text stands in quotes")
        return token

    def array(self, depth: int) -> SequenceNode:
        start = self.position
        items: list[Node] = []
        self.position += 1
        while not self.closes("]"):
            items.append(self.value(depth + 1))
            self.comma("]")
        return SequenceNode(self.span(start), tuple(items), flow=True)

    def inline(self, depth: int) -> MappingNode:
        start = self.position
        table = _Table(start, start)
        self.position += 1
        while not self.closes("}"):
            self.pair(table, depth)
            self.comma("}")
        table.end = self.position
        return self.node(table, flow=True)

    def closes(self, bracket: str) -> bool:
        self.skip(_BLANK)
        if self.peek() != bracket:
            return False
        self.position += 1
        return True

    def comma(self, bracket: str) -> None:
        self.skip(_BLANK)
        if self.peek() == ",":
            self.position += 1
        elif self.peek() != bracket:
            self.fail(f"expected ',' or {bracket!r}")

    def string(self) -> str:
        match = _STRING.match(self.text, self.position)
        if match is None:
            self.fail("a string that does not end")
        self.position = match.end()
        kind = match.lastgroup or "basic"
        content = match.group(kind)
        return _ESCAPE.sub(_unescape, content) if kind in ("long", "basic") else content

    def node(self, table: _Table, flow: bool = False) -> MappingNode:
        entries: list[Entry] = []
        for name, (span, value) in table.entries.items():
            if isinstance(value, _Table):
                entries.append(Entry(name, span, self.node(value, flow)))
            elif isinstance(value, _Tables):
                items = tuple(self.node(item) for item in value.items)
                entries.append(Entry(name, span, SequenceNode(items[0].span, items)))
            else:
                entries.append(Entry(name, span, value))
        end = max((table.end, *(_end(value) for _, value in table.entries.values())))
        return MappingNode(self.places.span(self.path, table.start, end), tuple(entries), flow)

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def skip(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return match is not None

    def span(self, start: int) -> Span:
        return self.places.span(self.path, start, self.position)

    def fail(self, message: str) -> NoReturn:
        raise ReadError(f"not valid TOML: {message}", self.path, *self.places.seen(self.position))


def _end(value: _Table | _Tables | Node) -> int:
    """Where what is written of a table ends; other values end before their table does."""
    if isinstance(value, _Tables):
        return max(_end(item) for item in value.items)
    if not isinstance(value, _Table):
        return 0
    return max((value.end, *(_end(inner) for _, inner in value.entries.values())))


def _unescape(match: re.Match[str]) -> str:
    short, long, letter = match.groups()
    if letter:
        return _ESCAPES[letter]
    code = int(short or long or "0", 16)
    return chr(code) if (short or long) and code < 0x110000 else ""
