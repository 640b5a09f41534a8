"""A configuration file as a tree of nodes that know their place: what the YAML and the JSON reader both produce.

`flatten` turns the tree into native facts, keyed by dotted path (`fsdp_config.offload_params`), which is what a dialect reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from memlint.facts import Fact, Problem, fixed, unknown
from memlint.source import ReadError, Span
from memlint.typed import Any, NamedTuple

MAX_DEPTH = 100
"""Deeper nesting is refused: no configuration needs it."""

MAX_NODES = 100_000
"""More nodes (after expanding aliases) are refused: an alias bomb, or data rather than a configuration."""


class Scalar(NamedTuple):
    """A leaf. `text` is the token as written without quotes; `value` is what the file format makes of it."""

    span: Span
    value: Any
    text: str
    quoted: bool = False
    tag: str = ""
    """A tag of the application's own (`!ENV`), whose meaning is not known; then `value` is only the text."""


class Entry(NamedTuple):
    """A key with its value. `inherited` marks an entry that a merge key (`<<`) brought here."""

    key: str
    key_span: Span
    value: Node
    inherited: bool = False


class MappingNode(NamedTuple):
    """A mapping; a key that is written twice occurs once here, with its last value, as every loader takes it."""

    span: Span
    entries: tuple[Entry, ...]
    flow: bool = False

    def get(self, key: str) -> Node | None:
        """The value under a key, or None."""
        for entry in self.entries:
            if entry.key == key:
                return entry.value
        return None

    def __contains__(self, key: object) -> bool:
        return any(entry.key == key for entry in self.entries)

    @property
    def keys(self) -> frozenset[str]:
        """The names of the entries."""
        return frozenset(entry.key for entry in self.entries)


class SequenceNode(NamedTuple):
    """A list."""

    span: Span
    items: tuple[Node, ...]
    flow: bool = False


Node = Scalar | MappingNode | SequenceNode


class Document(NamedTuple):
    """One document of a file. `problems` are things that loaders take silently (duplicate keys) or refuse (JSON comments)."""

    path: str
    root: Node
    problems: tuple[Problem, ...] = ()

    @property
    def mapping(self) -> MappingNode:
        """The root as a mapping; an empty one when the root is something else."""
        return self.root if isinstance(self.root, MappingNode) else MappingNode(self.root.span, ())

    @property
    def keys(self) -> frozenset[str]:
        """The names of the top-level keys."""
        return self.mapping.keys

    def at(self, path: str) -> Node | None:
        """The node under a dotted path, or None; a key that itself contains dots is found too."""
        node: Node = self.root
        rest = path
        while rest:
            if not isinstance(node, MappingNode):
                return None
            whole = node.get(rest)
            if whole is not None:
                return whole
            head, _, rest = rest.partition(".")
            child = node.get(head)
            if child is None:
                return None
            node = child
        return node

    def scalar_at(self, place: Span) -> Scalar | None:
        """The scalar that is written at a place, or None."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            if isinstance(node, MappingNode):
                stack.extend(entry.value for entry in node.entries)
            elif isinstance(node, SequenceNode):
                stack.extend(node.items)
            elif node.span == place:
                return node
        return None

    def text_at(self, path: str) -> str | None:
        """The scalar under a dotted path as text, or None."""
        node = self.at(path)
        return node.text if isinstance(node, Scalar) and node.value is not None else None


def plain(node: Node) -> Any:
    """The node as plain Python data."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    return {entry.key: plain(entry.value) for entry in node.entries}


def flatten(document: Document) -> dict[str, Fact]:
    """Every node below the root as a fact under its dotted path.

    Mappings and lists occur as a whole (plain data) and by their parts (`a.b`, `a.0`). An explicit null is a fixed None: most
    frameworks take it as "the default", some as "none", so the dialect decides. A text that a template would still fill
    (`{{ x }}`, an application's own tag) is unknown. Raises `ReadError` when aliases expand to too much.
    """
    nodes = list(_walk(document))  # counted whole before any part is expanded to plain data
    return {path: fact_of(node) for path, node in nodes}


def fact_of(node: Node) -> Fact:
    """The fact that a node states."""
    if isinstance(node, Scalar):
        if node.tag:
            return unknown(f"the tag {node.tag} is the application's own", node.span)
        if isinstance(node.value, str) and "{{" in node.value and "}}" in node.value and len(node.value) < 200:
            return unknown("a template placeholder that is filled later", node.span)
    return fixed(plain(node), node.span)


def _walk(document: Document) -> Iterator[tuple[str, Node]]:
    left = MAX_NODES
    stack: list[tuple[str, Node, int]] = [("", document.root, 0)]
    while stack:
        path, node, depth = stack.pop()
        left -= 1
        if left < 0 or depth > MAX_DEPTH:
            raise ReadError("too many or too deeply nested values", document.path, node.span.line, node.span.column)
        if path:
            yield path, node
        prefix = path + "." if path else ""
        if isinstance(node, MappingNode):
            stack.extend((prefix + entry.key, entry.value, depth + 1) for entry in reversed(node.entries))
        elif isinstance(node, SequenceNode):
            stack.extend((prefix + str(index), item, depth + 1) for index, item in reversed(list(enumerate(node.items))))
