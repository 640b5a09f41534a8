"""Library defaults by version, as data: `<library>.json` here, written by `tools/refresh_defaults.py` from the sources.

Each field of a configuration class has a history of `[since, default]`; `[since]` alone means it is gone from that version
on. A version between two that were read has the older default. Loaded on first use.
"""

from __future__ import annotations

import json
import os
from functools import cache

from memlint.facts import Fact, default, unknown
from memlint.paths import text_of
from memlint.typed import Any
from memlint.versions import Versions, version_key

MISSING = object()
"""Returned where a field does not exist in the version in force."""


@cache
def _classes(library: str) -> dict[str, dict[str, list[list[Any]]]]:
    file = os.path.join(os.path.dirname(__file__), f"{library}.json")
    classes: dict[str, dict[str, list[list[Any]]]] = json.loads(text_of(file))["classes"]
    return classes


def _current(changes: list[list[Any]], version: tuple[int, ...]) -> Any:
    """The default at a version."""
    value: Any = MISSING
    for change in changes:
        if version_key(change[0]) <= version:
            value = change[1] if len(change) == 2 else MISSING
    return value


def _within(bases: list[list[Any]], version: tuple[int, ...]) -> tuple[int, ...]:
    """The version, moved into the range in which the class was read (a class older or newer than what was read)."""
    first, last = version_key(bases[0][0]), bases[-1]
    if len(last) == 1 and version >= version_key(last[0]):
        *head, tail = version_key(last[0])
        return (*head, tail - 1, 999) if tail else (*head[:-1], head[-1] - 1, 999)
    return max(version, first)


def default_value(library: str, class_name: str, field: str, versions: Versions) -> Any:
    """The default of a field of a configuration class, looked up through its bases; `MISSING` where there is no such field."""
    seen: set[str] = set()
    queue = [(library, class_name)]
    while queue:
        where, name = queue.pop(0)
        fields = _classes(where).get(name)
        if fields is None or name in seen:
            continue
        seen.add(name)
        version = _within(fields["bases"], version_key(versions.of(where).version))
        if field in fields:
            value = _current(fields[field], version)
            if value is not MISSING:
                return value
        bases = _current(fields["bases"], version)
        queue += [(_home(base, where), base) for base in (bases if bases is not MISSING else [])]
    return MISSING


def _home(base: str, library: str) -> str:
    """The library a base class lives in."""
    return "transformers" if base in ("TrainingArguments", "Seq2SeqTrainingArguments") else library


def default_fact(library: str, class_name: str, field: str, versions: Versions) -> Fact:
    """The default as a fact, with the library and its version as origin; unknown where the version has no such field."""
    value = default_value(library, class_name, field, versions)
    if value is MISSING or (isinstance(value, str) and value.startswith("?")):
        return unknown(f"{class_name}.{field} has no default in {versions.note(library)}")
    return default(value, f"{versions.note(library)} default of {class_name}.{field}")


def field_names(library: str, class_name: str) -> frozenset[str]:
    """The recorded fields of a configuration class and its bases, of any version."""
    found: set[str] = set()
    queue = [(library, class_name)]
    while queue:
        where, name = queue.pop()
        fields = _classes(where).get(name, {})
        found |= fields.keys() - {"bases"}
        bases = {base for change in fields.get("bases", ()) for base in (change[1] if len(change) == 2 else ())}
        queue += [(_home(base, where), base) for base in bases if base != name]
    return frozenset(found)


def has_field(library: str, class_name: str, field: str, versions: Versions) -> bool:
    """Whether the class has the field in the version in force (of the fields that are recorded)."""
    return default_value(library, class_name, field, versions) is not MISSING
