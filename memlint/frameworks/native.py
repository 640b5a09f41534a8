"""From abstract values to the plain facts that dialects take."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.facts import Fact, Status, unknown
from memlint.read.pyeval.joins import constant, distinct
from memlint.read.pyeval.libraries import unread
from memlint.read.pyeval.values import ABSENT, Array, Class, Function, Instance, Object, Symbol, Table
from memlint.source import Span
from memlint.typed import Any

MAX_DEPTH = 6


def plain(fact: Fact) -> Fact:
    """The fact with a plain value: symbols become dotted text, lists and dicts plain data, objects unknown."""
    if fact.status is Status.UNKNOWN:
        return Fact(None, Status.UNKNOWN, fact.origin, reason=fact.reason or "not known")
    try:
        if fact.known:
            value = _plain(fact.value, MAX_DEPTH)
            return fact if value is fact.value else Fact(value, fact.status, fact.origin)
        values = [_plain(value, MAX_DEPTH) for value in fact.choices if value is not ABSENT]
        if not fact.decided_by:
            values = distinct(values) if all(constant(v) for v in values) else values
        if len(values) == 1:
            return Fact(values[0], Status.FIXED, fact.origin)
        return Fact(None, Status.CHOICES, fact.origin, tuple(values), fact.reason, fact.decided_by)
    except _NotPlain as error:
        return unknown(str(error), place(fact))


class _NotPlain(Exception):
    pass


def _plain(value: Any, depth: int) -> Any:
    if constant(value):
        return value
    if isinstance(value, Symbol):
        if reason := unread(value):
            raise _NotPlain(reason)
        return value.name
    if not depth:
        raise _NotPlain("nested too deeply")
    if isinstance(value, Array):
        if value.open:
            raise _NotPlain(value.open)
        return [_member(item, depth) for item in value.items]
    if isinstance(value, Table):
        return {str(key): _member(item, depth) for key, item in value.entries() if item.known and _is_plain(item.value)}
    if isinstance(value, (Function, Class)):
        return value.name
    if isinstance(value, Instance) and isinstance(value.cls, Symbol):
        return value.cls.name
    raise _NotPlain("an object that is not followed")


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Object) or isinstance(value, (Array, Table))


def _member(fact: Fact, depth: int) -> Any:
    if not fact.known:
        raise _NotPlain(fact.reason or "a member depends on a condition")
    return _plain(fact.value, depth - 1)


def arguments(given: Mapping[str, Fact], defaults: Mapping[str, Fact] | None = None) -> dict[str, Fact]:
    """Native facts of keyword arguments; dicts also by their parts (`gradient_checkpointing_kwargs.use_reentrant`).

    `defaults` fills an argument that some paths leave out.
    """
    native: dict[str, Fact] = {}
    for name, fact in given.items():
        if fact.status is Status.CHOICES and ABSENT in fact.choices:
            rest = [v for v in fact.choices if v is not ABSENT]
            otherwise = (defaults or {}).get(name)
            other = otherwise.value if otherwise is not None and otherwise.known else None
            values = tuple(v if v is not ABSENT else other for v in fact.choices) if fact.decided_by else (*rest, other)
            fact = Fact(None, Status.CHOICES, fact.origin, values, fact.reason, fact.decided_by)
        native[name] = plain(fact)
        if isinstance(fact.value, Table) and fact.known:
            _parts(native, name, fact.value, 3)
    return native


def _parts(native: dict[str, Fact], prefix: str, table: Table, depth: int) -> None:
    for key, fact in table.entries():
        native[f"{prefix}.{key}"] = plain(fact)
        if isinstance(fact.value, Table) and fact.known and depth:
            _parts(native, f"{prefix}.{key}", fact.value, depth - 1)


def flat(table: Table) -> dict[str, Fact]:
    """A dict as flattened native facts (an inline DeepSpeed configuration)."""
    native: dict[str, Fact] = {}
    for key, fact in table.entries():
        native[str(key)] = plain(fact)
        if isinstance(fact.value, Table) and fact.known:
            _parts(native, str(key), fact.value, 4)
    return native


def place(fact: Fact) -> Span | None:
    """Where a fact is written."""
    return next((origin.span for origin in fact.origin if origin.span is not None), None)
