"""Write a key into a TOML document by splicing at the spans of its nodes; comments, order and layout stay as they are.

As for YAML and JSON every splice is proved: read again, the document is the old one but for the one value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from memlint.facts import Site
from memlint.fixes.edit import Edit, apply, between
from memlint.read.document import Document, MappingNode, Node, Scalar, SequenceNode, plain
from memlint.read.tomldoc import read_toml
from memlint.source import Kind, Places, ReadError, Source, Span
from memlint.typed import Any

BARE = re.compile(r"[A-Za-z0-9_-]+")
"""A key that needs no quotes."""


def set_key(path: str, text: str, key: str, value: Any, section: str | None = None) -> tuple[Edit, ...] | None:
    """The edits that give a dotted key a value: none when it has it, None when that is impossible (TOML has no null).

    A key that is not there goes to the end of its table, and a table that is not there to the end of the text.
    `section` is the table's dotted name where the key itself may have dots in it (a model's name).
    """
    section, name = key.rpartition(".")[::2] if section is None else (section, key)
    key = f"{section}.{name}" if section else name
    document = _read(path, text)
    if document is None:
        return None
    node = document.at(key)
    if value is None:
        return () if node is None else None
    if node is not None:
        if isinstance(node, MappingNode) or _same(plain(node), value):
            return None if isinstance(node, MappingNode) else ()
        edit: Edit | None = Edit(path, *Places(text).range(node.span), _written(value, text, node))
    else:
        edit = _insertion(path, text, document, section, name, value)
    proved = edit is not None and _proved(document, apply(text, [edit]), section, name, value)
    return (edit,) if edit is not None and proved else None


def set_value(source: Source, place: Span, value: Any) -> tuple[Edit, ...] | None:
    """The edits that replace the scalar at a place by one of the same type; None when there is no such scalar."""
    document = _read(source.path, source.text)
    node = document.scalar_at(place) if document else None
    if node is None or type(node.value) is not type(value):
        return None
    if node.value == value:
        return ()
    edit = Edit(source.path, *Places(source.text).range(place), _written(value, source.text, node))
    return (edit,) if _read(source.path, apply(source.text, [edit])) else None


def set_keys(source: Source, site: Site, values: Mapping[str, Any], place: Span | None = None) -> tuple[Edit, ...] | None:
    """The edits that give keys of the document these values; see `set_key`."""
    after = source.text
    for key, value in values.items():
        edits = set_key(source.path, after, key, value)
        if edits is None:
            return None
        after = apply(after, edits)
    return between(source.path, source.text, after)


def states(source: Source, site: Site, name: str) -> bool:
    """Whether the document states a key."""
    document = _read(source.path, source.text)
    return document is not None and document.at(name) is not None


def _insertion(path: str, text: str, document: Document, section: str, name: str, value: Any) -> Edit | None:
    table = document.at(section) if section else document.root
    places = Places(text)
    newline = places.newline()
    word = name if BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
    line = f"{word} = {_written(value, text, None)}"
    if table is None:
        gap = "" if not text or text.endswith(("\n", "\r")) else newline
        return Edit(path, len(text), len(text), f"{gap}{newline}[{section}]{newline}{line}{newline}")
    if not isinstance(table, MappingNode):
        return None
    start, end = places.range(table.span)
    if table.flow:
        inside = end - 1
        before = text[start + 1 : inside].rstrip()
        at = start + 1 + len(before)
        return Edit(path, at, at, f", {line}" if before and not before.endswith(",") else f" {line}")
    own = [entry.value for entry in table.entries if not _is_table(text, places, entry.value)]
    if own:
        last = max(own, key=lambda node: (node.span.end_line, node.span.end_column))
        first_key = min(entry.key_span for entry in table.entries if entry.value is last)
        margin = text[places.starts[first_key.line - 1] : places.offset(first_key.line, first_key.column)]
        at = places.line_end(places.range(last.span)[1])
        return Edit(path, at, at, newline + (margin if not margin.strip() else "") + line)
    if not section:
        header = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text)
        at = header.start() if header else len(text)
        return Edit(path, at, at, line + newline + newline)
    if text[start : start + 1] != "[":
        return None  # made by dotted keys elsewhere
    at = places.line_end(start)
    return Edit(path, at, at, newline + line)


def _is_table(text: str, places: Places, node: Node) -> bool:
    """Whether a value stands under a header of its own."""
    if isinstance(node, SequenceNode):
        return not node.flow
    return isinstance(node, MappingNode) and not node.flow and text[places.range(node.span)[0]] == "["


def _written(value: Any, text: str, old: Node | None) -> str:
    """A value as TOML; text takes the quotes of what it replaces."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_written(item, text, None) for item in value) + "]"
    word = str(value)
    single = isinstance(old, Scalar) and old.quoted and text[Places(text).range(old.span)[0]] == "'"
    if single and "'" not in word and word.isprintable():
        return f"'{word}'"
    return json.dumps(word, ensure_ascii=False)


def _read(path: str, text: str) -> Document | None:
    try:
        return read_toml(Source(path, Kind.TOML, text))
    except ReadError:
        return None


def _proved(before: Document, after: str, section: str, name: str, value: Any) -> bool:
    """True when the new text reads as the old document with one value changed."""
    changed = _read(before.path, after)
    if changed is None:
        return False
    expected = plain(before.root)
    inner = expected
    for above in section.split(".") if section else ():
        inner = inner.setdefault(above, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        return False
    inner[name] = list(value) if isinstance(value, tuple) else value
    return _same(plain(changed.root), expected)


def _same(a: Any, b: Any) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
