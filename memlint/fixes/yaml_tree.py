"""A YAML text as a concrete tree: every node with its characters, anchors and aliases included.

The reader's `Document` says what a file means; this tree says what is written, which is what a splice needs. It is
built from parse events, so an alias is a node of its own and never leads to an edit of the anchor it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from memlint.typed import Any

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

SCALAR, MAPPING, SEQUENCE, ALIAS = "scalar", "mapping", "sequence", "alias"
PROPERTIES = re.compile(r"(?:[&!][^\s\[\]{},]*\s+)+|[&!][^\s\[\]{},]*\Z")


@dataclass(slots=True)
class Node:
    """A written node: its characters `start` to `end` without anchor and tag, its events `first` to `last` (exclusive).

    `items` holds key and value alternately for a mapping. `style` is the quoting of a scalar (`""` is plain).
    """

    kind: str
    start: int
    end: int
    first: int
    last: int = 0
    value: str = ""
    style: str = ""
    anchor: str = ""
    tag: str = ""
    flow: bool = False
    items: list[Node] = field(default_factory=list)

    def entries(self) -> list[tuple[Node, Node]]:
        """The key and value nodes of a mapping, in order."""
        return list(zip(self.items[::2], self.items[1::2], strict=True))

    def get(self, key: str) -> tuple[Node, Node] | None:
        """The last entry under a key (the one that loaders take); None when the mapping does not state it itself."""
        found = [pair for pair in self.entries() if pair[0].kind == SCALAR and pair[0].value == key]
        return found[-1] if found else None

    @property
    def is_null(self) -> bool:
        """True for a value that is not written at all: `key:`."""
        return self.kind == SCALAR and self.start == self.end and not self.style and not self.value


@dataclass(frozen=True, slots=True)
class Tree:
    """The roots of a text's documents, and the events they were made of."""

    text: str
    roots: tuple[Node, ...]
    events: tuple[Any, ...]

    @property
    def signatures(self) -> list[tuple[Any, ...]]:
        """What each event says, regardless of where it stands and how a collection is laid out."""
        return [signature(event) for event in self.events]


def parse(text: str) -> Tree | None:
    """The tree of a YAML text; None when it does not parse."""
    try:
        events: tuple[Any, ...] = tuple(yaml.parse(text, Loader=Loader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    roots: list[Node] = []
    open_nodes: list[Node] = []
    for index, event in enumerate(events):
        name = type(event).__name__
        if name in ("ScalarEvent", "AliasEvent", "MappingStartEvent", "SequenceStartEvent"):
            node = _node(text, event, index)
            (open_nodes[-1].items if open_nodes else roots).append(node)
            if node.kind in (MAPPING, SEQUENCE):
                open_nodes.append(node)
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            node = open_nodes.pop()
            node.last = index + 1
            node.end = event.end_mark.index
    return Tree(text, tuple(roots), events)


def _node(text: str, event: Any, index: int) -> Node:
    start, end = event.start_mark.index, event.end_mark.index
    if type(event).__name__ == "AliasEvent":
        return Node(ALIAS, start, end, index, index + 1, anchor=event.anchor)
    anchor, tag = event.anchor or "", event.tag or ""
    if isinstance(event, yaml.ScalarEvent):
        if anchor or tag:
            properties = PROPERTIES.match(text, start, end)
            start = properties.end() if properties else start
        style = (event.style or "").strip("\0")
        if style in ("|", ">"):
            end = start + len(text[start:end].rstrip())
        return Node(SCALAR, start, end, index, index + 1, event.value, style, anchor, tag)
    kind = MAPPING if isinstance(event, yaml.MappingStartEvent) else SEQUENCE
    flow = bool(event.flow_style)
    if flow and (anchor or tag):
        start = text.index("{" if kind == MAPPING else "[", start)
    return Node(kind, start, end, index, anchor=anchor, tag=tag, flow=flow)


def signature(event: Any) -> tuple[Any, ...]:
    """What an event says: its type, anchor, tag, and for a scalar its text and whether it is plain."""
    name = type(event).__name__
    if isinstance(event, yaml.ScalarEvent):
        return (name, event.anchor, event.tag, event.value, bool(event.implicit[0]))
    return (name, getattr(event, "anchor", None), getattr(event, "tag", None))


def typed(text: str) -> Any:
    """What a plain scalar means to PyYAML (YAML 1.1: `1e-4` is text, `no` is false)."""
    loader = Loader("")
    try:
        tag = loader.resolve(yaml.ScalarNode, text, (True, False))
        return loader.construct_object(yaml.ScalarNode(tag, text))
    except (ValueError, yaml.YAMLError):
        return text
    finally:
        loader.dispose()


def descend(node: Node, path: str) -> tuple[Node, str]:
    """Follow a dotted path from a node as far as it is written: the last node reached, and the rest of the path.

    A key that itself contains dots is preferred over its parts, as `Document.at` does.
    """
    while path:
        step = next(_steps(node, path), None)
        if step is None:
            return node, path
        node, path = step
    return node, ""


def _steps(node: Node, path: str) -> Iterator[tuple[Node, str]]:
    if node.kind == SEQUENCE:
        head, _, rest = path.partition(".")
        if head.isdigit() and int(head) < len(node.items):
            yield node.items[int(head)], rest
        return
    if node.kind != MAPPING:
        return
    parts = path.split(".")
    for count in (len(parts), *range(1, len(parts))):
        found = node.get(".".join(parts[:count]))
        if found is not None:
            yield found[1], ".".join(parts[count:])
