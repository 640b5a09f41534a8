"""Write a key into a JSON object by splicing at the spans of its nodes; indentation and layout stay as they are.

As for YAML every splice is proved: read again, the document is the old one but for the one value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from memlint.facts import Site
from memlint.fixes.edit import Edit, apply, between
from memlint.read.document import Document, MappingNode, Node, SequenceNode, plain
from memlint.read.jsondoc import read_json
from memlint.source import Kind, Places, ReadError, Source, Span
from memlint.typed import Any


def set_key(path: str, text: str, pointer: str, key: str, value: Any) -> tuple[Edit, ...] | None:
    """The edits that give `key` of the object at `pointer` a value: none when it has it, None when impossible.

    `key` may be dotted (`zero_optimization.stage`): objects on the way are made as needed.
    """
    if isinstance(value, Mapping):
        return _set_all(path, text, pointer, {f"{key}.{name}": item for name, item in value.items()})
    document = _read(path, text)
    if document is None or not isinstance(document.root, MappingNode):
        return None
    route = _route(document.root, f"{pointer}.{key}" if pointer else key)
    if route is None:
        return None
    names, node, rest = route
    if rest:
        edit = _insertion(path, text, node, rest, value) if isinstance(node, MappingNode) else None
    elif isinstance(node, MappingNode):
        return None
    elif _same(plain(node), value):
        return ()
    else:
        start, end = Places(text).range(node.span)
        edit = Edit(path, start, end, json.dumps(value, ensure_ascii=False))
    if edit is None:
        return None
    return (edit,) if _proved(document, apply(text, [edit]), [*names, *rest], value) else None


def set_value(source: Source, place: Span, value: Any) -> tuple[Edit, ...] | None:
    """The edits that replace the scalar at a place by one of the same type; None when there is no such scalar."""
    document = _read(source.path, source.text)
    node = document.scalar_at(place) if document else None
    if node is None or (node.value is not None and type(node.value) is not type(value)):
        return None
    if _same(node.value, value):
        return ()
    start, end = Places(source.text).range(place)
    edit = Edit(source.path, start, end, json.dumps(value, ensure_ascii=False))
    return (edit,) if _read(source.path, apply(source.text, [edit])) else None


def set_keys(
    source: Source,
    site: Site,
    values: Mapping[str, Any],
    place: Span | None = None,
) -> tuple[Edit, ...] | None:
    """The edits that give keys of the object at a site these values; see `set_key`."""
    return _set_all(source.path, source.text, site.pointer, values)


def states(source: Source, site: Site, name: str) -> bool:
    """Whether the object at a site states a key."""
    document = _read(source.path, source.text)
    return document is not None and document.at(f"{site.pointer}.{name}" if site.pointer else name) is not None


def _set_all(path: str, text: str, pointer: str, values: Mapping[str, Any]) -> tuple[Edit, ...] | None:
    """Several keys, given to the object one after the other; the edits are of whole lines."""
    after = text
    for key, value in values.items():
        edits = set_key(path, after, pointer, key, value)
        if edits is None:
            return None
        after = apply(after, edits)
    return between(path, text, after)


def _read(path: str, text: str) -> Document | None:
    try:
        return read_json(Source(path, Kind.JSON, text))
    except ReadError:
        return None


def _route(root: Node, path: str) -> tuple[list[str], Node, list[str]] | None:
    """Follow a dotted path: the keys passed, the last node reached, and the keys that are not there yet."""
    names: list[str] = []
    node, parts = root, path.split(".")
    while parts:
        if isinstance(node, SequenceNode):
            if not parts[0].isdigit() or int(parts[0]) >= len(node.items):
                return None
            names.append(parts[0])
            node, parts = node.items[int(parts[0])], parts[1:]
            continue
        if not isinstance(node, MappingNode):
            return None
        count = next((n for n in (len(parts), *range(1, len(parts))) if ".".join(parts[:n]) in node), 0)
        if not count:
            break
        name = ".".join(parts[:count])
        child = node.get(name)
        assert child is not None  # it was just found
        names.append(name)
        node, parts = child, parts[count:]
    return names, node, parts


def _insertion(path: str, text: str, node: MappingNode, names: list[str], value: Any) -> Edit:
    """The edit that adds a member after the last one (by position: a repeated key stands where it was written last)."""
    places = Places(text)
    start, _ = places.range(node.span)
    if not node.entries:
        return Edit(path, start + 1, start + 1, _member(names, value, None, "", ""))
    last = max(node.entries, key=lambda entry: (entry.value.span.end_line, entry.value.span.end_column))
    after = places.range(last.value.span)[1]
    key_start = places.range(last.key_span)[0]
    indent = text[places.starts[places.line_of(key_start) - 1] : key_start]
    if indent.strip():
        return Edit(path, after, after, ", " + _member(names, value, None, "", ""))
    outer = re.match(r"[ \t]*", text[places.starts[places.line_of(start) - 1] :])
    step = indent[len(outer.group()) :] if outer and indent.startswith(outer.group()) else "  "
    return Edit(path, after, after, "," + places.newline() + indent + _member(names, value, step, indent, places.newline()))


def _member(names: list[str], value: Any, step: str | None, indent: str, newline: str) -> str:
    """`"name": value`; objects on the way are spread over lines indented by `step`, or on one line when it is None."""
    name, *rest = names
    if not rest:
        return f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
    if step is None:
        return f"{json.dumps(name, ensure_ascii=False)}: {{{_member(rest, value, None, '', '')}}}"
    inner = indent + step
    member = _member(rest, value, step, inner, newline)
    return f"{json.dumps(name, ensure_ascii=False)}: {{{newline}{inner}{member}{newline}{indent}}}"


def _proved(before: Document, after: str, names: list[str], value: Any) -> bool:
    """True when the new text reads as the old document with one value changed, and complains of nothing new."""
    changed = _read(before.path, after)
    if changed is None or len(changed.problems) != len(before.problems):
        return False
    expected = plain(before.root)
    inner = expected
    for name in names[:-1]:
        inner = inner[int(name)] if isinstance(inner, list) else inner.setdefault(name, {})
    inner[int(names[-1]) if isinstance(inner, list) else names[-1]] = value
    return _same(plain(changed.root), expected)


def _same(a: Any, b: Any) -> bool:
    """Equal as JSON: `true` is not `1`, NaN equals itself."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
