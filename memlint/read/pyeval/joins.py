"""How facts join: one for several paths, an operation on every combination of alternatives, and what is left when nothing is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memlint.facts import Fact, Origin, Status, fixed
from memlint.read.pyeval.values import ABSENT, REST, Array, Opaque, Symbol, Table
from memlint.source import Span
from memlint.typed import Any

MAX_CHOICES = 16
"""More alternatives than this are no longer a closed set that helps anybody."""
MAX_ORIGINS = 8
"""Links kept in a chain of provenance."""


def constant(value: Any) -> bool:
    """Whether a value is a plain constant of the language."""
    return value is None or value is Ellipsis or isinstance(value, (bool, int, float, complex, str, bytes))


def same(a: Any, b: Any) -> bool:
    """Equality that keeps `1`, `1.0` and `True` apart and compares objects by identity."""
    if constant(a) or isinstance(a, Symbol):
        return type(a) is type(b) and bool(a == b)
    if isinstance(a, Array) and isinstance(b, Array) and not (a.open or b.open) and len(a.items) == len(b.items):
        return all(x.known and y.known and same(x.value, y.value) for x, y in zip(a.items, b.items, strict=True))
    if isinstance(a, (list, dict)):
        return type(a) is type(b) and bool(a == b)
    return a is b


def distinct(values: Iterable[Any]) -> list[Any]:
    """The values without repeats, in order."""
    found: list[Any] = []
    for value in values:
        if not any(same(value, other) for other in found):
            found.append(value)
    return found


def opaque(reason: str, operation: str, parents: Iterable[Fact] = (), span: Span | None = None, **kw: Any) -> Fact:
    """An unknown value that remembers its inputs."""
    origin = (Origin(span),) if span else ()
    return Fact(Opaque(operation, tuple(parents), **kw), Status.UNKNOWN, origin, reason=reason)


def decider(condition: Fact) -> tuple[str, bool]:
    """What decides an undecided condition, and whether the condition is its negation.

    The target card (`gpu.bf16`), or the unknown value itself: what it chooses in several places moves together.
    """
    if condition.status is Status.CHOICES:
        pairs = {(True, False): False, (False, True): True}
        known = condition.choices in pairs and bool(condition.decided_by)
        return (condition.decided_by, pairs[condition.choices]) if known else ("", False)
    value, flipped = condition.value, False
    while isinstance(value, Opaque) and value.operation == "Not" and isinstance(value.parents[0].value, Opaque):
        value, flipped = value.parents[0].value, not flipped
    return (f"condition {value.born}", flipped) if isinstance(value, Opaque) else ("", False)


def weaken(fact: Fact) -> Fact:
    """The same value, but only by default."""
    return fact._replace(status=Status.DEFAULT) if fact.status is Status.FIXED else fact


def linked(fact: Fact, span: Span | None, note: str) -> Fact:
    """The fact reached through one more link, the chain bounded and without repeats."""
    if len(fact.origin) >= MAX_ORIGINS or (fact.origin and fact.origin[-1].span == span):
        return fact
    return fact.through(span, note)


def merge(facts: Iterable[Fact], decided_by: str = "", reason: str = "depends on a condition") -> Fact:
    """One fact for several paths: equal values stay, different ones become choices, an unknown one makes it unknown.

    With `decided_by` the first fact is the value when the condition holds and the second when it does not.
    """
    facts = list(facts)
    first = facts[0]
    if len(facts) == 1 or all(f is first for f in facts):
        return first
    unknowns = [f for f in facts if f.status is Status.UNKNOWN]
    if unknowns:
        if len(unknowns) == len(facts):
            return Fact(Opaque("merge", tuple(facts)), Status.UNKNOWN, first.origin, reason=first.reason or unknowns[-1].reason)
        return Fact(Opaque("merge", tuple(facts)), Status.UNKNOWN, unknowns[0].origin, reason=unknowns[0].reason)
    values = distinct(v for f in facts for v in f.values)
    origin = tuple(dict.fromkeys(o for f in facts for o in f.origin[:2]))[:MAX_ORIGINS]
    if len(values) == 1:
        status = Status.DEFAULT if any(f.status is Status.DEFAULT for f in facts) else Status.FIXED
        return Fact(values[0], status, first.origin or origin)
    if len(values) > MAX_CHOICES:
        return Fact(Opaque("merge", tuple(facts)), Status.UNKNOWN, origin, reason="too many alternatives")
    if decided_by and len(facts) == 2 and all(f.known for f in facts):
        pair = (facts[0].value, facts[1].value)
        return Fact(None, Status.CHOICES, origin, choices=pair, decided_by=decided_by, reason=reason)
    return Fact(None, Status.CHOICES, origin, choices=tuple(values), reason=reason)


class Unknowable(Exception):
    """Raised by an operation that has no static result; the message is the reason for a person."""


def combine(operation: Callable[..., Any], facts: tuple[Fact, ...], span: Span, name: str) -> Fact:
    """Apply a function to every combination of known values.

    Facts decided by the same condition move together. The result is computed at `span`; the operands' origins follow it.
    """
    for fact in facts:
        if fact.status is Status.UNKNOWN:
            return opaque(fact.reason, name, facts, fact.origin[0].span if fact.origin else span)
    origin = (Origin(span, "computed here"), *(o for f in facts for o in f.origin[:2]))[:MAX_ORIGINS]
    try:
        return _combine(operation, facts, span, name, origin)
    except Unknowable as error:
        return opaque(str(error), name, facts, span)


def _combine(operation: Callable[..., Any], facts: tuple[Fact, ...], span: Span, name: str, origin: tuple[Origin, ...]) -> Fact:
    if all(f.known for f in facts):
        value = operation(*(f.value for f in facts))
        status = Status.DEFAULT if any(f.status is Status.DEFAULT for f in facts) else Status.FIXED
        return Fact(value, status, origin)
    varying = [f for f in facts if not f.known]
    deciders = {f.decided_by for f in varying}
    rows: list[tuple[Any, ...]]
    if len(deciders) == 1 and varying[0].decided_by and len({len(f.choices) for f in varying}) == 1:
        rows = [tuple(f.value if f.known else f.choices[i] for f in facts) for i in range(len(varying[0].choices))]
        results = [operation(*row) for row in rows]
        if all(same(r, results[0]) for r in results):
            return Fact(results[0], Status.FIXED, origin)
        return Fact(
            None,
            Status.CHOICES,
            origin,
            choices=tuple(results),
            decided_by=varying[0].decided_by,
            reason=varying[0].reason,
        )
    rows = [()]
    for fact in facts:
        rows = [(*row, value) for row in rows for value in fact.values]
        if len(rows) > MAX_CHOICES * 4:
            return opaque("too many alternatives", name, facts, span)
    values = distinct(operation(*row) for row in rows)
    if len(values) == 1:
        return Fact(values[0], Status.FIXED, origin)
    if len(values) > MAX_CHOICES:
        return opaque("too many alternatives", name, facts, span)
    return Fact(None, Status.CHOICES, origin, choices=tuple(values), reason=varying[0].reason)


def merge_table(slots: dict[Any, Any], fact: Fact) -> None:
    """Unpack `**fact` into slots."""
    if isinstance(fact.value, Table) and fact.known:
        slots.update(fact.value.entries())
        if fact.value.open:
            slots[REST] = fact.value.open
        return
    if fact.status is Status.CHOICES and all(isinstance(v, Table) for v in fact.choices):
        keys = dict.fromkeys(k for v in fact.choices for k in v.slots)
        for key in keys:
            if key is REST:
                slots[key] = next(v.slots[key] for v in fact.choices if key in v.slots)
                continue
            absent = slots.get(key, fixed(ABSENT))
            slots[key] = merge([v.slots.get(key, absent) for v in fact.choices], fact.decided_by)
        return
    slots[REST] = fact.reason or "unpacks something that is not known"
