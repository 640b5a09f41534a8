"""Builtins that make and walk containers: `dict`, `range`, `sorted`, `map` and their like."""

from __future__ import annotations

from collections.abc import Callable

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.joins import Unknowable, combine, constant, merge_table, opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.operators import truth
from memlint.read.pyeval.sequences import sequence
from memlint.read.pyeval.values import REST, Array, Call, Instance, Opaque, Symbol, Table
from memlint.typed import Any


def _array(kind: str) -> Callable[[Machine, Call], Fact | None]:
    def build(machine: Machine, call: Call) -> Fact | None:
        if not call.args:
            return fixed(Array((), kind), call.span)
        source = call.args[0]
        if source.status is Status.UNKNOWN:
            return None

        def one(value: Any) -> Any:
            members = sequence(value)
            if members is None:
                raise Unknowable("a sequence that is not known")
            return Array(members, kind)

        fact = combine(one, (source,), call.span, kind)
        return Fact(fact.value, fact.status, source.origin, fact.choices, fact.reason, fact.decided_by)

    return build


def _dict(machine: Machine, call: Call) -> Fact | None:
    table = Table()
    if call.args:
        source = call.args[0]
        if isinstance(source.value, Table) and source.known:
            merge_table(table.slots, source)
        elif source.known and (pairs := sequence(source.value)) is not None:
            for pair in pairs:
                if isinstance(pair.value, Array) and len(pair.value.items) == 2 and constant(pair.value.items[0].value):
                    table.slots[pair.value.items[0].value] = pair.value.items[1]
        else:
            table.slots[REST] = source.reason or "made from something that is not known"
    table.slots.update(call.kwargs)
    if call.open:
        table.slots[REST] = call.open
    return fixed(table, call.span)


def _len(machine: Machine, call: Call) -> Fact | None:
    if len(call.args) != 1:
        return None

    def one(value: Any) -> int:
        if isinstance(value, (str, bytes)):
            return len(value)
        members = value.items if isinstance(value, Array) and not value.open else sequence(value)
        if members is None:
            raise Unknowable("the length of something that is not known")
        return len(members)

    return combine(one, call.args, call.span, "len")


def _range(machine: Machine, call: Call) -> Fact | None:
    bounds = call.args[:3]
    slots: dict[Any, Any] = {".range": bounds}

    def count(*values: Any) -> int:
        if not all(isinstance(v, int) for v in values):
            raise Unknowable("a range that is not known")
        try:
            return len(range(*values))
        except (ValueError, OverflowError) as error:
            raise Unknowable(str(error)) from None

    slots[".count"] = combine(count, bounds, call.span, "range") if bounds else fixed(0)
    if len(bounds) == 1 and bounds[0].known:
        slots[".count"] = bounds[0]
    return fixed(Instance(Symbol("builtins.range"), call, slots), call.span)


def _enumerate(machine: Machine, call: Call) -> Fact | None:
    members = _members(call, 0)
    if members is None:
        return None
    return fixed(Array([fixed(Array((fixed(i), m), "tuple")) for i, m in enumerate(members)]), call.span)


def _zip(machine: Machine, call: Call) -> Fact | None:
    rows = _rows(call, 0)
    return fixed(Array([fixed(Array(row, "tuple")) for row in rows]), call.span) if rows is not None else None


def _rows(call: Call, first: int) -> list[tuple[Fact, ...]] | None:
    """The members of the arguments from one on, side by side; None where one is not known."""
    columns = [_members(call, index) for index in range(first, len(call.args))]
    if not columns or any(c is None for c in columns):
        return None
    return list(zip(*(c for c in columns if c is not None), strict=False))


def _sorted(machine: Machine, call: Call) -> Fact | None:
    """`sorted`, by a `key` of the script where there is one."""
    members, backwards = _members(call, 0), call.kwargs.get("reverse")
    if members is None or (backwards is not None and not backwards.known):
        return None
    order = _ordered(machine, call, members, backwards is not None and bool(backwards.value))
    return fixed(Array(order), call.span) if order is not None else None


def _ordered(machine: Machine, call: Call, members: list[Fact], backwards: bool) -> list[Fact] | None:
    """Members by their keys; None where the keys are not known or cannot be compared."""
    key = call.kwargs.get("key")
    given = key is not None and key.value is not None
    keys = [machine.call(key, Call("key", (m,), {}, call.span)) if key is not None and given else m for m in members]
    plain = [_comparable(k) for k in keys]
    if any(value is None for value in plain):
        return None
    try:
        order = sorted(range(len(members)), key=lambda index: plain[index], reverse=backwards)
    except TypeError:
        return None
    return [members[index] for index in order]


def _comparable(fact: Fact) -> Any:
    if not fact.known:
        return None
    if isinstance(fact.value, Array) and fact.value.kind == "tuple" and not fact.value.open:
        parts = tuple(_comparable(item) for item in fact.value.items)
        return None if None in parts else parts
    return fact.value if constant(fact.value) else None


def extreme(machine: Machine, call: Call, last: bool) -> Fact | None:
    """`max(things, key=...)` and `min`; those of numbers are computed in `builtins`."""
    members = _members(call, 0) if len(call.args) == 1 else list(call.args)
    order = _ordered(machine, call, members, last) if members else None
    return order[0] if order else None


def _members(call: Call, index: int) -> list[Fact] | None:
    return sequence(call.args[index].value) if len(call.args) > index and call.args[index].known else None


def _map(machine: Machine, call: Call) -> Fact | None:
    rows = _rows(call, 1)
    if rows is None:
        return None
    return fixed(Array([machine.call(call.args[0], Call("map", row, {}, call.span)) for row in rows]), call.span)


def _filter(machine: Machine, call: Call) -> Fact | None:
    members = _members(call, 1)
    if members is None:
        return None
    kept = []
    for member in members:
        asked = member if call.args[0].value is None else machine.call(call.args[0], Call("filter", (member,), {}, call.span))
        test = combine(truth, (asked,), call.span, "truth")
        if not test.known:
            return None
        if test.value:
            kept.append(member)
    return fixed(Array(kept), call.span)


def _reversed(machine: Machine, call: Call) -> Fact | None:
    members = _members(call, 0)
    return fixed(Array(reversed(members)), call.span) if members is not None else None


def _reduce(machine: Machine, call: Call) -> Fact | None:
    members = _members(call, 1)
    if members is None:
        return None
    members = [*call.args[2:3], *members]
    if not members:
        return None
    result = members[0]
    for member in members[1:]:
        result = machine.call(call.args[0], Call("reduce", (result, member), {}, call.span))
    return result


def _fromkeys(machine: Machine, call: Call) -> Fact | None:
    members = _members(call, 0)
    if members is None or not all(m.known and constant(m.value) for m in members):
        return None
    value = call.argument("value", 1) or fixed(None, call.span)
    return fixed(Table({m.value: value for m in members}), call.span)


def _next(machine: Machine, call: Call) -> Fact | None:
    members = _members(call, 0)
    if members:
        return members[0]
    made = call.args[0].value if call.args else None
    if isinstance(made, Opaque) and made.operation == "generator" and made.parents:
        return made.parents[0]
    return opaque("the next element of something", "element", call.args, call.span)


def _first(machine: Machine, call: Call) -> Fact | None:
    return call.args[0] if call.args else None


CONTAINER_CALLS: dict[str, Callable[[Machine, Call], Fact | None]] = {
    "builtins.list": _array("list"),
    "builtins.tuple": _array("tuple"),
    "builtins.set": _array("set"),
    "builtins.frozenset": _array("frozenset"),
    "builtins.dict": _dict,
    "collections.OrderedDict": _dict,
    "builtins.len": _len,
    "builtins.range": _range,
    "builtins.enumerate": _enumerate,
    "builtins.zip": _zip,
    "builtins.sorted": _sorted,
    "builtins.map": _map,
    "builtins.next": _next,
    "builtins.iter": _first,
    "types.MappingProxyType": _first,
    "builtins.filter": _filter,
    "builtins.reversed": _reversed,
    "functools.reduce": _reduce,
    "builtins.dict.fromkeys": _fromkeys,
}
