"""Attributes and items: reading and setting them, and the members of what is iterated."""

from __future__ import annotations

from posixpath import basename, splitext

from memlint.facts import Fact, Status, fixed
from memlint.paths import folder_of, posix
from memlint.read.pyeval.environment import variable
from memlint.read.pyeval.imports import resolved, submodule
from memlint.read.pyeval.joins import constant, linked, merge, opaque, weaken
from memlint.read.pyeval.machine import Halted, Machine
from memlint.read.pyeval.values import (
    ABSENT,
    REST,
    Array,
    Attributes,
    Bound,
    Call,
    Class,
    Function,
    Instance,
    Module,
    Scope,
    Symbol,
    Table,
    possible,
)
from memlint.source import Span
from memlint.typed import Any

MAX_ALTERNATIVES = 8
"""Entries of a dict up to which an unknown key gives a closed set."""
NOWHERE = Span("", 1)
"""The place of a call that stands nowhere."""
MAX_PARENTS = 12
"""Folders above a path that are listed (`Path(__file__).parents[1]`)."""
MAX_MEMBERS = 64
"""Longest known sequence that is walked member by member."""


def bound(fact: Fact) -> Fact:
    """A variable that is bound on some paths only has the values of those paths."""
    if fact.status is Status.CHOICES and ABSENT in fact.choices:
        rest = tuple(v for v in fact.choices if v is not ABSENT)
        return Fact(rest[0], Status.FIXED, fact.origin) if len(rest) == 1 else fact
    return fact


def get_attribute(machine: Machine, owner: Fact, name: str, span: Span) -> Fact:
    """`owner.name`."""
    if owner.status is Status.UNKNOWN:
        return opaque(owner.reason, f"attribute:{name}", (owner,), span)
    found = [_attribute_of(machine, owner, value, name, span) for value in owner.values]
    fact = merge(found, owner.decided_by if len(found) == 2 else "")
    return weaken(fact) if owner.status is Status.DEFAULT and constant(fact.value) else fact


def _attribute_of(machine: Machine, owner: Fact, value: Any, name: str, span: Span) -> Fact:
    if isinstance(value, Symbol):
        dotted = f"{value.name}.{name}"
        return machine.library.symbol(machine, dotted, span) or fixed(Symbol(dotted), span)
    if isinstance(value, Module):
        fact = value.scope.slots.get(name)
        return linked(resolved(machine, fact), span, f"`{name}`") if fact is not None else submodule(machine, value, name, span)
    if isinstance(value, Class):
        if name in {"__name__", "__qualname__"}:
            return fixed(value.name, span)
        return value.find(name) or opaque(f"`{value.name}.{name}` is not defined here", f"attribute:{name}", (owner,), span)
    if isinstance(value, Instance):
        fact = value.slots.get(name)
        if fact is None and name[:2] != "__" and ".aliased" in value.slots:
            fact = held(value).slots.get(name)
        if fact is not None:
            return present(machine, value, name, linked(fact, span, f"`.{name}`"), span)
        if isinstance(value.cls, Class):
            found = value.cls.find(name)
            if found is not None and isinstance(found.value, Function):
                if any(_is_property(d) for d in found.value.decorators):
                    return machine.follow(found.value, Call(name, (fixed(value),), {}, span))
                return fixed(Bound(fixed(value), found.value), span)
            if found is not None:
                return linked(found, span, f"`.{name}`")
        if name == "__dict__":
            return fixed(Attributes(value), span)
        if name == "value" and isinstance(value.cls, Class):
            return fixed(value, span)  # a member of an enumeration
        known = machine.library.attribute(machine, value, name, span) or _fallback(machine, value, name, span)
        if known is not None:
            return known
        return opaque(f"`.{name}` is not set here", f"attribute:{name}", (fixed(value),), span)
    if isinstance(value, Table) and name in value.slots:
        return linked(value.slots[name], span, f"`.{name}`")
    if isinstance(value, str) and name in {"parent", "name", "stem", "suffix"}:
        return fixed(_of_path(posix(value), name), span)
    if isinstance(value, str) and name == "parents":
        above = posix(value)
        return fixed(Array([fixed(above := _of_path(above, "parent"), span) for _ in range(MAX_PARENTS)], "tuple"), span)
    if name == "value" and (constant(value) or isinstance(value, (Array, Table))):
        return fixed(value, span)  # a member of an enumeration
    if isinstance(value, (Table, Array, str, bytes)):
        return fixed(Bound(fixed(value), name), span)
    return opaque(f"`.{name}` of something that is not followed", f"attribute:{name}", (owner,), span)


def held(instance: Instance) -> Table:
    """The items of an object whose class extends `dict`."""
    table: Table = instance.slots[".items"]
    return table


def _fallback(machine: Machine, owner: Instance, name: str, span: Span) -> Fact | None:
    """`__getattr__` of a class of the script: a method, or `dict.get` and `dict.__getitem__` of one that extends `dict`."""
    found = owner.cls.find("__getattr__") if isinstance(owner.cls, Class) and name[:2] != "__" else None
    if found is None:
        return None
    if isinstance(found.value, Function):
        return _hook(machine, owner, found.value, fixed(name), span)
    if isinstance(found.value, Symbol) and ".items" in owner.slots:
        return _item_of(machine, held(owner), name, span, fixed(owner), fixed(name))
    return None


def _hook(machine: Machine, owner: Instance, function: Function, key: Fact, span: Span) -> Fact | None:
    """The result of a special method; None where it raises."""
    try:
        return machine.follow(function, Call(function.name, (fixed(owner), key), {}, span))
    except Halted:
        return None


def present(machine: Machine, owner: Instance, name: str, fact: Fact, span: Span) -> Fact:
    """An attribute that some paths leave unset has the library's default there."""
    if fact.status is not Status.CHOICES or ABSENT not in fact.choices:
        return fact
    otherwise = machine.library.attribute(machine, owner, name, span)
    rest = [Fact(v, Status.FIXED, fact.origin) for v in fact.choices if v is not ABSENT]
    return merge([*rest, otherwise] if otherwise is not None else rest)


def _is_property(decorator: Fact) -> bool:
    name = decorator.value.name.rpartition(".")[2] if isinstance(decorator.value, Symbol) else ""
    return name in {"property", "cached_property"}


def set_attribute(machine: Machine, owner: Fact, name: str, value: Fact) -> None:
    """`owner.name = value`; an owner that is one of several gets it as one more possibility."""
    targets = [v for v in possible(owner) if isinstance(v, (Instance, Module, Class, Table))]
    if not targets:
        machine.library.assigned(machine, owner, name, value)
    for target in targets:
        if isinstance(target, Instance) and name == "__dict__" and isinstance(value.value, Table) and value.known:
            for key, item in value.value.entries():
                machine.write(target, key, item)
            continue
        if isinstance(target, Instance) and ".items" in target.slots:
            if name == "__dict__" and value.value is target:
                machine.write(target, ".aliased", True)
                continue
            if ".aliased" in target.slots or (isinstance(target.cls, Class) and target.cls.find("__setattr__") is not None):
                machine.write(held(target), name, value)
                continue
        setter = target.cls.find(f".setter:{name}") if isinstance(target, Instance) and isinstance(target.cls, Class) else None
        if setter is not None and isinstance(setter.value, Function):
            machine.follow(setter.value, Call(name, (fixed(target), value), {}, machine.span(setter.value.node)))
            continue
        slots = target if isinstance(target, (Instance, Table)) else target.scope
        old = slots.slots.get(name)
        fact = value if len(targets) == 1 or old is None else merge([old, value])
        machine.write(slots, name, fact)
        if isinstance(target, Instance):
            machine.write(target, f".set:{name}", True)


def is_environ(value: Any) -> bool:
    """Whether it is `os.environ`."""
    return isinstance(value, Symbol) and value.name.endswith("environ")


def get_item(machine: Machine, owner: Fact, key: Fact, span: Span) -> Fact:
    """`owner[key]`."""
    if key.status is Status.UNKNOWN and owner.known and isinstance(owner.value, Table):
        rows = [fact for _, fact in owner.value.entries()]
        if not owner.value.open and 0 < len(rows) <= MAX_ALTERNATIVES:
            return linked(merge(rows, reason=key.reason), span, "one of the dict's values")
    if owner.status is Status.UNKNOWN or key.status is Status.UNKNOWN:
        reason = owner.reason if owner.status is Status.UNKNOWN else key.reason
        return opaque(reason, "item", (owner, key), span)
    found: list[Fact] = []
    for value in owner.values:
        for index in key.values:
            if is_environ(value):
                found.append(variable(machine, index, None, span))
            else:
                found.append(_item_of(machine, value, index, span, owner, key))
    decided_by = owner.decided_by or key.decided_by
    fact = merge(found, decided_by if len(found) == 2 else "")
    if Status.DEFAULT in (owner.status, key.status):
        fact = weaken(fact)
    return linked(fact, span, "looked up here")


def _item_of(machine: Machine, value: Any, index: Any, span: Span, owner: Fact, key: Fact) -> Fact:
    if isinstance(value, Table) and hashable(index):
        if index in value.slots:
            fact: Fact = value.slots[index]
            return bound(fact)
        return opaque(value.open or f"no key {index!r} in the dict", "item", (owner, key), span)
    if isinstance(value, Array) and isinstance(index, int):
        if not value.open and -len(value.items) <= index < len(value.items):
            return value.items[index]
        return opaque(value.open or "the index is out of range", "item", (owner, key), span)
    if isinstance(value, (str, bytes)) and isinstance(index, int) and -len(value) <= index < len(value):
        return Fact(value[index], Status.FIXED, owner.origin)
    if isinstance(value, Instance):
        found = value.cls.find("__getitem__") if isinstance(value.cls, Class) else None
        if found is not None and isinstance(found.value, Function) and found.value is not machine.frame.function:
            given = _hook(machine, value, found.value, key if key.value == index else fixed(index), span)
            return given or opaque("an item that the class does not give", "item", (owner, key), span)
        if ".items" in value.slots:
            return _item_of(machine, held(value), index, span, owner, key)
        known = machine.library.attribute(machine, value, f"[{index}]", span) if constant(index) else None
        if known is not None:
            return known
        if isinstance(index, str) and index in value.slots:
            slot: Fact = value.slots[index]
            return slot
        return machine.library.method(machine, fixed(value), "__getitem__", Call("__getitem__", (key,), {}, span)) or opaque(
            "an item of an object", "item", (owner, key), span
        )
    if isinstance(value, Class) and isinstance(index, str):
        return value.find(index) or opaque("a member that is not defined", "item", (owner, key), span)
    return opaque("an item of something that is not followed", "item", (owner, key), span)


def hashable(value: Any) -> bool:
    """Whether the interpreter can use it as the key of a dict."""
    return constant(value) or isinstance(value, (Symbol, Class, Function))


def set_item(machine: Machine, owner: Fact, key: Fact, value: Fact) -> None:
    """`owner[key] = value`."""
    for target in possible(owner):
        if isinstance(target, Instance) and isinstance(target.cls, Class):
            found = target.cls.find("__setitem__")
            if found is not None and isinstance(found.value, Function) and found.value is not machine.frame.function:
                machine.follow(found.value, Call("__setitem__", (fixed(target), key, value), {}, NOWHERE))
                continue
            if ".items" in target.slots:
                target = held(target)
        if is_environ(target) and isinstance(key.value, str):
            machine.environ[key.value] = value
        elif isinstance(target, Table):
            if key.status is Status.UNKNOWN or not all(hashable(k) for k in key.values):
                machine.write(target, REST, "a key that is not known was set")
                continue
            for index in key.values:
                machine.write(target, index, value if key.known else merge([target.slots.get(index, fixed(ABSENT)), value]))
        elif isinstance(target, Array):
            items = list(target.items)
            if key.known and isinstance(key.value, int) and -len(items) <= key.value < len(items):
                items[key.value] = value
                machine.write(target, "items", tuple(items))
            else:
                machine.write(target, REST, "a member that is not known was set")
        elif (isinstance(target, Instance) and isinstance(key.value, str)) or (
            isinstance(target, Scope) and isinstance(key.value, str)
        ):
            machine.write(target, key.value, value)


def _of_path(path: str, name: str) -> str:
    """An attribute of a `pathlib` path."""
    if name == "parent":
        return folder_of(path) or "."
    stem, suffix = splitext(basename(path))
    return {"name": stem + suffix, "stem": stem, "suffix": suffix}[name]


def iterate(machine: Machine, value: Any) -> list[Fact] | None:
    """The members that iterating a value gives, or None when they are not all known."""
    if isinstance(value, Array):
        return None if value.open else list(value.items)
    if isinstance(value, Instance) and ".items" in value.slots:
        value = held(value)
    if isinstance(value, Table):
        return None if value.open else [fixed(key) for key, _ in value.entries()]
    if isinstance(value, str) and len(value) <= MAX_MEMBERS:
        return [fixed(char) for char in value]
    if isinstance(value, Instance) and isinstance(value.cls, Class) and "NamedTuple" in value.library:
        return [value.slots[name] for name in value.cls.all_fields() if name in value.slots]
    if isinstance(value, Class) and value.is_enumeration:
        named = [(n, f) for n, f in value.scope.slots.items() if not n.startswith("_") and not isinstance(f.value, Function)]
        call = Call(value.name, (), {}, value.span)
        return [fixed(Instance(Symbol("enum.member"), call, {"name": fixed(n), "value": f})) for n, f in named]
    if isinstance(value, Instance) and ".members" in value.slots:
        members: Array = value.slots[".members"]
        return None if members.open else list(members.items)
    return None
