"""JSON text -> the same `Document` as YAML gives, with spans.

Comments and trailing commas are read and reported: the frameworks load these files with `json.load`, which refuses them. A text
that is not JSON even so (a template with bare words, a merge conflict) raises `ReadError`.
"""

from __future__ import annotations

import json
import re

from memlint.facts import Problem
from memlint.read.document import MAX_DEPTH, Document, Entry, MappingNode, Node, Scalar, SequenceNode
from memlint.source import Places, ReadError, Source, Span
from memlint.typed import Any, NoReturn

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|#[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?(?![\w.])")
_WORD = re.compile(r"-?[A-Za-z_]\w*")
_WORDS: dict[str, Any] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}


def read_json(source: Source) -> Document:
    """The document of a JSON text. Raises `ReadError` with the place where the text is not JSON."""
    return _Scanner(source).document()


class _Scanner:
    def __init__(self, source: Source) -> None:
        self.path, self.text = source.path, source.text
        self.places = Places(source.text)
        self.problems: list[Problem] = []
        self.position = 0

    def document(self) -> Document:
        self.skip()
        root = self.value(0)
        self.skip()
        if self.position < len(self.text):
            self.fail("text after the end of the JSON value")
        return Document(self.path, root, tuple(self.problems))

    def value(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.fail("nested too deeply")
        start = self.position
        character = self.text[start : start + 1]
        if character == "{":
            return self.mapping(depth)
        if character == "[":
            return self.sequence(depth)
        if character == '"':
            text = self.string()
            return Scalar(self.span(start), text, text, quoted=True)
        number = _NUMBER.match(self.text, start)
        if number:
            self.position = number.end()
            token = number.group()
            value = float(token) if number.group(1) or number.group(2) else _int(token)
            return Scalar(self.span(start), value, token)
        word = _WORD.match(self.text, start)
        if word and word.group() in _WORDS:
            self.position = word.end()
            return Scalar(self.span(start), _WORDS[word.group()], word.group())
        found = word.group() if word else character
        return self.fail(f"expected a JSON value, found {found!r}" if found else "the JSON value is cut off")

    def mapping(self, depth: int) -> MappingNode:
        start = self.position
        entries: dict[str, Entry] = {}
        for _ in self.members("}"):
            key_start = self.position
            if self.text[key_start : key_start + 1] != '"':
                self.fail("expected a key in double quotes")
            key = self.string()
            span = self.span(key_start)
            self.skip()
            if self.text[self.position : self.position + 1] != ":":
                self.fail("expected ':' after the key")
            self.position += 1
            self.skip()
            before = entries.pop(key, None)
            if before is not None:
                message = f"the key {key!r} is written twice; the last one counts"
                self.problems.append(Problem("duplicate-key", message, span, (before.key_span,)))
            entries[key] = Entry(key, span, self.value(depth + 1))
        return MappingNode(self.span(start), tuple(entries.values()), flow=True)

    def sequence(self, depth: int) -> SequenceNode:
        start = self.position
        items = [self.value(depth + 1) for _ in self.members("]")]
        return SequenceNode(self.span(start), tuple(items), flow=True)

    def members(self, close: str) -> Any:
        """Yields at the start of each member; passes the brackets and commas."""
        self.position += 1
        self.skip()
        comma = -1
        while self.text[self.position : self.position + 1] != close:
            if self.position >= len(self.text):
                self.fail("the JSON value is cut off")
            yield
            self.skip()
            comma = -1
            if self.text[self.position : self.position + 1] == ",":
                comma = self.position
                self.position += 1
                self.skip()
            elif self.position >= len(self.text):
                self.fail("the JSON value is cut off")
            elif self.text[self.position : self.position + 1] != close:
                self.fail(f"expected ',' or {close!r}")
        if comma >= 0:
            here = self.places.span(self.path, comma, comma + 1)
            self.problems.append(Problem("invalid-json", "a trailing comma: json.load refuses this file", here))
        self.position += 1

    def string(self) -> str:
        start = self.position
        match = _STRING.match(self.text, start)
        if match is None:
            self.fail("a string that does not end on its line")
        self.position = match.end()
        try:
            text: str = json.loads(match.group())
        except ValueError:
            self.position = start
            self.fail("a string with an invalid escape")
        return text

    def skip(self) -> None:
        """Passes white space and comments."""
        while True:
            space = _SPACE.match(self.text, self.position)
            self.position = space.end() if space else self.position
            comment = _COMMENT.match(self.text, self.position)
            if comment is None:
                return
            start, self.position = self.position, comment.end()
            if not any(problem.name == "invalid-json" for problem in self.problems):
                message = "a comment: json.load refuses this file"
                self.problems.append(Problem("invalid-json", message, self.span(start)))

    def span(self, start: int) -> Span:
        return self.places.span(self.path, start, self.position)

    def fail(self, message: str) -> NoReturn:
        raise ReadError(f"not valid JSON: {message}", self.path, *self.places.seen(self.position))


def _int(token: str) -> int | float:
    """An integer; a literal too long for one (over 4,300 digits) as a float."""
    return int(token) if len(token) < 1000 else float(token)
