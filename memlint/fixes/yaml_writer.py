"""Write a key into a YAML mapping by splicing at the marks of its nodes.

Only the characters of the value (or one new line) change; comments, quoting, indentation, anchors, other documents and
line ends stay as they are. Every splice is proved before it is returned: parsed again, the text must say exactly what
it said before, apart from the one value. What cannot be written that way is not written at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memlint.facts import Site
from memlint.fixes.edit import Edit, apply, between
from memlint.fixes.yaml_text import Style, meaning, nested
from memlint.fixes.yaml_tree import ALIAS, MAPPING, SCALAR, SEQUENCE, Node, Tree, descend, parse, typed
from memlint.source import Places, Source, Span
from memlint.typed import Any


def set_key(path: str, text: str, pointer: str, key: str, value: Any, line: int = 1, near: int = -1) -> tuple[Edit, ...] | None:
    """The edits that give `key` of the mapping at `pointer` a value: none when it has it, None when that is impossible.

    `key` may be dotted (`fsdp_config.offload_params`): mappings on the way are made as needed. `line` tells which of
    several documents is meant; `near` is the offset of a related value, after which a new key goes (else the last). A key
    that comes from a merge or an alias is overridden in the mapping itself.
    """
    if isinstance(value, Mapping):
        return _set_all(path, text, pointer, {f"{key}.{name}": item for name, item in value.items()}, line, near)
    tree = parse(text)
    root = _root(tree, text, line) if tree else None
    if tree is None or root is None:
        return None
    style = Style.of(tree)
    splice = _splice(Splicer(text, style, near), root, f"{pointer}.{key}" if pointer else key, value)
    if splice is None or splice.keep:
        return None if splice is None else ()
    if _is_shared(tree, root, splice):
        return None
    edit = Edit(path, splice.start, splice.end, splice.replacement)
    return (edit,) if _proved(tree, apply(text, [edit]), splice) else None


def set_value(source: Source, place: Span, value: Any) -> tuple[Edit, ...] | None:
    """The edits that replace the scalar at a place by one of the same type; None when there is no such scalar."""
    tree = parse(source.text)
    if tree is None:
        return None
    start, end = Places(source.text).range(place)
    found = [(root, names) for root in tree.roots for names in _names_of(root, start, end)]
    if not found:
        return None
    root, (node, names) = found[0]
    old = node.value if node.style else typed(node.value)
    if old is not None and type(old) is not type(value):
        return None
    return set_key(source.path, source.text, "", names, value, Places(source.text).line_of(root.start))


def set_keys(
    source: Source,
    site: Site,
    values: Mapping[str, Any],
    place: Span | None = None,
) -> tuple[Edit, ...] | None:
    """The edits that give keys of the mapping at a site these values; see `set_key`."""
    near = Places(source.text).offset(place.line, place.column) if place and place.path == source.path else -1
    return _set_all(source.path, source.text, site.pointer, values, site.span.line, near)


def states(source: Source, site: Site, name: str) -> bool:
    """Whether the mapping at a site states a key itself."""
    tree = parse(source.text)
    root = _root(tree, source.text, site.span.line) if tree else None
    return root is not None and not descend(root, f"{site.pointer}.{name}" if site.pointer else name)[1]


def _names_of(root: Node, start: int, end: int) -> Iterator[tuple[Node, str]]:
    """The scalar that covers a range, with its dotted path from the root."""
    stack = [(root, "")]
    while stack:
        node, path = stack.pop()
        if node.kind == SCALAR and node.start == start and node.end == end and path:
            yield node, path
        prefix = path + "." if path else ""
        if node.kind == MAPPING:
            stack.extend((item, prefix + key.value) for key, item in node.entries() if key.kind == SCALAR)
        elif node.kind == SEQUENCE:
            stack.extend((item, prefix + str(index)) for index, item in enumerate(node.items))


def remove_key(path: str, text: str, pointer: str, key: str, line: int = 1) -> tuple[Edit, ...] | None:
    """The edits that drop `key` from the block mapping at `pointer`: none when it is not there, None when impossible.

    Only a key with a value on its own line goes, with the whole line: its comment speaks of nothing else.
    """
    tree = parse(text)
    root = _root(tree, text, line) if tree else None
    if tree is None or root is None:
        return None
    places = Places(text)
    mapping, rest = descend(root, pointer)
    *above, leaf = key.split(".")
    if not rest and above and mapping.get(key) is None:
        mapping, rest = descend(mapping, ".".join(above))
        key = leaf
    if rest or mapping.kind != MAPPING:
        return ()
    found = mapping.get(key)
    if found is None:
        return ()
    name, item = found
    first = places.starts[places.line_of(name.start) - 1]
    last = places.line_end(item.end)
    if mapping.flow or len(mapping.items) == 2 or text[first : name.start].strip() or item.kind == MAPPING:
        return None
    if item.kind == SEQUENCE or item.anchor or places.line_of(name.start) != places.line_of(item.end):
        return None
    edit = Edit(path, first, _after_newline(text, last), "")
    after = parse(apply(text, [edit]))
    expected = tree.signatures[: name.first] + tree.signatures[item.last :]
    return (edit,) if after is not None and after.signatures == expected else None


@dataclass(frozen=True, slots=True)
class Splice:
    """One replacement in a text, and what it means in events: `first` to `last` give way to `meaning`."""

    start: int
    end: int
    replacement: str
    first: int
    last: int
    meaning: tuple[Any, ...]
    keep: bool = False
    """The text already says so."""


KEEP = Splice(0, 0, "", 0, 0, (), keep=True)


@dataclass(frozen=True, slots=True)
class Splicer:
    """A text and its style. `near` is the offset of a related value, beside which a new key of its mapping goes."""

    text: str
    style: Style
    near: int = -1

    def replace(self, node: Node, value: Any, in_flow: bool) -> Splice | None:
        """The splice that gives a written value another one."""
        if node.kind == SEQUENCE and not node.flow:
            return self._replace_block(node, value)
        old = self.text[node.start : node.end].rstrip()
        if node.tag or ("\n" in old and "#" in old):
            return None  # a tag would change what the new value means; a comment inside would be lost
        if node.kind == MAPPING or node.style in ("|", ">"):
            return None
        if node.kind == SCALAR:
            has = node.value if node.style else typed(node.value)
            if type(has) is type(value) and has == value:
                return KEEP
        written = self.style.render(value, in_flow, node.style)
        if isinstance(value, bool) and old in ("True", "False", "true", "false"):
            written = written.capitalize() if old[0].isupper() else written.lower()
        before = self.text[node.start - 1 : node.start]
        space = " " if node.is_null and before == ":" else ""
        return Splice(node.start, node.end, space + written, node.first, node.last, meaning(value))

    def _replace_block(self, node: Node, value: Any) -> Splice | None:
        """A block list gets further items at its end; its other changes would lose layout, so they are not made."""
        if not isinstance(value, Sequence) or isinstance(value, str) or any(item.kind != SCALAR for item in node.items):
            return None
        old = [typed(item.value) if not item.style else item.value for item in node.items]
        if list(value) == old:
            return KEEP
        if list(value[: len(old)]) != old:
            return None
        places = Places(self.text)
        at = places.line_end(end_of(node))
        line_start = places.starts[places.line_of(node.items[-1].start) - 1]
        dash = re.match(r"[ \t]*- *", self.text[line_start:])
        if dash is None:
            return None
        lines = "".join(
            self.style.newline + dash.group() + self.style.render(item, False, node.items[-1].style) for item in value[len(old) :]
        )
        added = tuple(event for item in value[len(old) :] for event in meaning(item))
        return Splice(at, at, lines, node.last - 1, node.last - 1, added)

    def insert(self, mapping: Node, path: str, value: Any) -> Splice | None:
        """The splice that adds `path` (dotted: nested mappings) to a mapping that does not have its first key."""
        if not mapping.items:
            if not mapping.flow:
                return None
            inside = mapping.start + 1
            return Splice(inside, inside, self.style.flow(path, value), mapping.last - 1, mapping.last - 1, nested(path, value))
        before = self._neighbour(mapping)
        if mapping.flow:
            at = before.end
            written = ", " + self.style.flow(path, value)
        else:
            places = Places(self.text)
            at = places.line_end(end_of(before))
            column = self._column(places, mapping)
            if column is None:
                return None
            written = self.style.newline + self.style.block(path, value, column)
        return Splice(at, at, written, before.last, before.last, nested(path, value))

    def _neighbour(self, mapping: Node) -> Node:
        """The value after which a new key goes: the one at `near`, else the last."""
        values = (item for item in mapping.items[1::2] if item.kind == SCALAR and item.start <= self.near <= item.end)
        return next(values, mapping.items[-1])

    def override(self, alias: Node, key: Node, mapping: Node, path: str, value: Any) -> Splice | None:
        """The splice that makes `key: *defaults` a mapping which merges the anchor and overrides one of its keys."""
        name = f"*{alias.anchor}"
        merged = (("ScalarEvent", "<<"), ("AliasEvent", alias.anchor))
        start, *inner = nested(path, value, wrapped=True)
        if mapping.flow:
            written = f"{{<<: {name}, {self.style.flow(path, value)}}}"
        else:
            column = self._column(Places(self.text), mapping)
            if column is None or self.text[key.end : alias.start].strip() != ":":
                return None
            pad = self.style.newline + " " * (column + self.style.indent)
            written = f"{pad}<<: {name}{self.style.newline}" + self.style.block(path, value, column + self.style.indent)
        begin = alias.start if mapping.flow else key.end + len(self.text[key.end : alias.start].rstrip())
        return Splice(begin, alias.end, written, alias.first, alias.last, (start, *merged, *inner))

    def fill(self, null: Node, key: Node, mapping: Node, path: str, value: Any) -> Splice | None:
        """The splice that gives `key:` without a value a mapping with one key."""
        if mapping.flow or not null.is_null or null.anchor or null.tag:
            return None
        places = Places(self.text)
        column = self._column(places, mapping)
        if column is None:
            return None
        at = places.line_end(key.end)
        written = self.style.newline + self.style.block(path, value, column + self.style.indent)
        return Splice(at, at, written, null.first, null.last, nested(path, value, wrapped=True))

    def _column(self, places: Places, mapping: Node) -> int | None:
        """The column of a block mapping's keys; None when they do not share one."""
        columns = {key.start - places.starts[places.line_of(key.start) - 1] for key, _ in mapping.entries()}
        return columns.pop() if len(columns) == 1 else None


def end_of(node: Node) -> int:
    """Where the written content of a node ends: its last scalar, not the comments and blank lines after it."""
    while node.kind in (MAPPING, SEQUENCE) and not node.flow and node.items:
        node = node.items[-1]
    return node.end


def _splice(splicer: Splicer, root: Node, path: str, value: Any) -> Splice | None:
    """Find what is written under a dotted path from the root, and how to make it say `value`."""
    node, rest = root, path
    parent: tuple[Node, Node] | None = None
    while rest:
        if node.kind in (MAPPING, SEQUENCE):
            reached, left = descend(node, rest)
            if reached is node:
                return splicer.insert(node, rest, value) if node.kind == MAPPING else None
            parent = _entry_of(node, reached)
            node, rest = reached, left
        elif parent is None:
            return None
        elif node.kind == ALIAS:
            return splicer.override(node, parent[1], parent[0], rest, value)
        else:
            return splicer.fill(node, parent[1], parent[0], rest, value)
    if parent is None:
        return None
    return splicer.replace(node, value, parent[0].flow)


def _is_shared(tree: Tree, root: Node, splice: Splice) -> bool:
    """True when the splice lies in an anchored node that an alias elsewhere repeats: it would change both places."""
    aliased = {event.anchor for event in tree.events if type(event).__name__ == "AliasEvent"}
    stack = [root]
    while stack:
        node = stack.pop()
        if node.kind != ALIAS and node.anchor in aliased and node.first <= splice.first < node.last:
            return True
        stack.extend(node.items)
    return False


def _entry_of(node: Node, value: Node) -> tuple[Node, Node] | None:
    """The mapping that holds `value` directly, and the key it stands under."""
    stack = [node]
    while stack:
        node = stack.pop()
        if node.kind == MAPPING:
            for key, item in node.entries():
                if item is value:
                    return node, key
        stack.extend(node.items)
    return None


def _set_all(path: str, text: str, pointer: str, values: Mapping[str, Any], line: int, near: int) -> tuple[Edit, ...] | None:
    """Several keys at once, given to the mapping one after the other; the edits are of whole lines."""
    after = text
    for key, value in values.items():
        edits = set_key(path, after, pointer, key, value, line, near)
        if edits is None:
            return None
        after = apply(after, edits)
    return between(path, text, after)


def _root(tree: Tree, text: str, line: int) -> Node | None:
    """The root of the document that holds a line."""
    at = Places(text).offset(line, 1)
    begun = [root for root in tree.roots if root.start <= at]
    return begun[-1] if begun else next(iter(tree.roots), None)


def _proved(tree: Tree, after: str, splice: Splice) -> bool:
    """True when the new text says what the old one did, but for the meaning of the splice."""
    changed = parse(after)
    if changed is None:
        return False
    old, new = tree.signatures, changed.signatures
    tail = len(old) - splice.last
    middle = new[splice.first : len(new) - tail]
    return (
        new[: splice.first] == old[: splice.first]
        and new[len(new) - tail :] == old[splice.last :]
        and len(middle) == len(splice.meaning)
        and all(_means(event, wanted) for event, wanted in zip(middle, splice.meaning, strict=True))
    )


def _means(event: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """True when a parsed event is the wanted one; a plain scalar is compared by what PyYAML makes of it."""
    name, anchor, *rest = event
    if name != wanted[0]:
        return False
    if name == "AliasEvent":
        return bool(anchor == wanted[1])
    if name != "ScalarEvent":
        return anchor is None
    _, text, plain = rest
    value = wanted[1]
    written = typed(text) if plain else text
    if written == "<<" or value == "<<":
        return bool(text == value)
    return anchor is None and type(written) is type(value) and written == value


def _after_newline(text: str, at: int) -> int:
    match = re.compile(r"\r\n|\n|\r").match(text, at)
    return match.end() if match else at
