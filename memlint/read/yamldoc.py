"""YAML text -> `Document`s with spans. Composes nodes with PyYAML's C loader; never constructs objects.

Scalars get the types that PyYAML's SafeLoader gives them (YAML 1.1: `yes` and `on` are booleans, `1e-4` is text). Merge keys
are resolved, duplicate keys keep the last value and are reported, multi-document files give several documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from memlint.facts import Problem
from memlint.read.document import MAX_DEPTH, Document, Entry, MappingNode, Node, Scalar, SequenceNode
from memlint.source import Places, ReadError, Source, Span
from memlint.typed import Any

_PREFIX = "tag:yaml.org,2002:"
_BOOLS = {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}
_FOREIGN_BREAKS = re.compile("[\x85\u2028\u2029]")
_CONFLICT = re.compile(r"^(?:<{7}|={7}|>{7})(?:[ \r\n]|$)", re.MULTILINE)


def read_yaml(source: Source) -> tuple[Document, ...]:
    """Every document of a YAML text that is not empty. Raises `ReadError` with the place where the text is not YAML."""
    text = source.text
    conflict = _CONFLICT.search(text) if "<<<<<<<" in text and ">>>>>>>" in text else None
    if conflict:
        raise ReadError("merge conflict markers", source.path, text.count("\n", 0, conflict.start()) + 1)
    reader = _Reader(source)
    try:
        roots = list(yaml.compose_all(text, Loader=yaml.CSafeLoader))
    except yaml.MarkedYAMLError as error:
        raise ReadError(f"not valid YAML: {_reason(error)}", source.path, *_place(error, text)) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ReadError(f"not valid YAML: {str(error).splitlines()[0]}", source.path) from None
    except RecursionError:
        raise ReadError("nested too deeply", source.path) from None
    return tuple(reader.document(root) for root in roots if root is not None)


def _place(error: yaml.MarkedYAMLError, text: str) -> tuple[int, int]:
    """Where the parser stopped; when that is the end of the text, where what it was reading began (a bracket, a quote)."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return 1, 1
    if mark.index >= len(text.rstrip()):
        mark = error.context_mark or mark
    return Places(text).seen(mark.index)


def _reason(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.problem, error.context) if part]
    reason = ", ".join(parts) or "syntax error"
    if "\\t" in reason or "character that cannot start any token" in reason:
        reason += " (a tab used for indentation?)"
    return reason


class _Reader:
    """Converts the composed nodes of one source."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        self.text = source.text
        self.problems: list[Problem] = []
        self.done: dict[int, Node] = {}
        # libyaml also breaks lines at NEL, LS and PS; editors (and Source.lines) do not.
        self.places = Places(source.text) if _FOREIGN_BREAKS.search(source.text) else None

    def document(self, root: yaml.Node) -> Document:
        self.problems = []
        node = self.convert(root, 0)
        return Document(self.path, node, tuple(self.problems))

    def convert(self, node: yaml.Node, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise ReadError("nested too deeply", self.path, node.start_mark.line + 1, node.start_mark.column + 1)
        known = self.done.get(id(node))
        if known is not None:
            return known
        converted: Node
        if isinstance(node, yaml.ScalarNode):
            converted = self.scalar(node)
        elif isinstance(node, yaml.SequenceNode):
            items = tuple(self.convert(item, depth + 1) for item in node.value)
            converted = SequenceNode(self.span(node), items, bool(node.flow_style))
        else:
            assert isinstance(node, yaml.MappingNode)  # compose gives no other kind
            converted = self.mapping(node, depth)
        self.done[id(node)] = converted
        return converted

    def mapping(self, node: yaml.MappingNode, depth: int) -> MappingNode:
        own: dict[str, Entry] = {}
        inherited: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _PREFIX + "merge":
                for entry in self.merged(value_node, depth):
                    inherited.setdefault(entry.key, entry)
                continue
            span = self.span(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                message = "not valid YAML: a mapping or list as a key (an unquoted template placeholder?)"
                raise ReadError(message, self.path, span.line, span.column)
            key = key_node.value
            before = own.pop(key, None)
            if before is not None:
                message = f"the key {key!r} is written twice; the last one counts"
                self.problems.append(Problem("duplicate-key", message, span, (before.key_span,)))
            own[key] = Entry(key, span, self.convert(value_node, depth + 1))
        entries = [entry for entry in inherited.values() if entry.key not in own]
        return MappingNode(self.span(node), (*entries, *own.values()), bool(node.flow_style))

    def merged(self, node: yaml.Node, depth: int) -> Iterator[Entry]:
        """The entries that a merge key brings; of several mappings the first one wins (YAML 1.1 merge type)."""
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            converted = self.convert(part, depth + 1)
            if isinstance(converted, MappingNode):
                for entry in converted.entries:
                    yield Entry(entry.key, entry.key_span, entry.value, inherited=True)

    def scalar(self, node: yaml.ScalarNode) -> Scalar:
        tag = node.tag.removeprefix(_PREFIX)
        if tag == node.tag or tag.startswith("python/"):
            return Scalar(self.span(node), node.value, node.value, node.style is not None, node.tag)
        return Scalar(self.span(node), scalar_value(tag, node.value), node.value, node.style in ("'", '"'))

    def span(self, node: yaml.Node) -> Span:
        start, end = node.start_mark, node.end_mark
        if self.places is None:
            return Span(self.path, start.line + 1, start.column + 1, end.line + 1, end.column + 1)
        return self.places.span(self.path, start.index, end.index)


def scalar_value(tag: str, text: str) -> Any:
    """The Python value of a YAML 1.1 scalar with a resolved core tag, as PyYAML's SafeConstructor gives it."""
    try:
        if tag == "bool":
            return _BOOLS[text.lower()]
        if tag == "null":
            return None
        if tag == "int":
            return _integer(text.replace("_", ""))
        if tag == "float":
            return _float(text.replace("_", "").lower())
    except (ValueError, KeyError):
        return text
    return text


def _integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits == "0":
        return 0
    if digits.startswith("0b"):
        return sign * int(digits[2:], 2)
    if digits.startswith("0x"):
        return sign * int(digits[2:], 16)
    if digits.startswith("0"):
        return sign * int(digits, 8)
    if ":" in digits:
        return sign * int(_sexagesimal(digits))
    return sign * int(digits)


def _float(text: str) -> float:
    sign = -1.0 if text.startswith("-") else 1.0
    digits = text.lstrip("+-")
    if digits == ".inf":
        return sign * float("inf")
    if digits == ".nan":
        return float("nan")
    if ":" in digits:
        return sign * _sexagesimal(digits)
    return sign * float(digits)


def _sexagesimal(digits: str) -> float:
    """YAML 1.1 numbers to base 60 (`1:30` is 90)."""
    value = 0.0
    for part in digits.split(":"):
        value = value * 60 + float(part)
    return value
