"""Objects of classes of the script: how they are made, and what `super()` finds."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.access import get_item, held, set_item
from memlint.read.pyeval.joins import linked, merge, opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.methods import builtin_method
from memlint.read.pyeval.objects import attributes_of, copied
from memlint.read.pyeval.values import ABSENT, Call, Class, Field, Function, Instance, Symbol, Table


def decorators(function: Function) -> list[str]:
    """The last names of a function's decorators."""
    return [fact.value.name.rpartition(".")[2] if isinstance(fact.value, Symbol) else "" for fact in function.decorators]


def with_self(owner: Fact, function: Function, call: Call) -> Call:
    """The call of a method upon its object."""
    return call if "staticmethod" in decorators(function) else call.upon(owner)


class Super:
    """What `super()` gives: the object, and the class whose bases are searched."""

    def __init__(self, owner: Fact, cls: Class) -> None:
        self.owner = owner
        self.cls = cls


def super_of(machine: Machine, call: Call) -> Fact:
    """`super()` where the machine is."""
    function = machine.frame.function
    cls = function.owner if function is not None else None
    first = next(iter(machine.frame.scope.slots.values()), None)
    if cls is None or first is None:
        return opaque("`super()` outside a class that is followed", "super", (), call.span)
    return fixed(Super(first, cls), call.span)


def call_super(machine: Machine, value: Super, name: str, call: Call) -> Fact | None:
    """A method of a base class, None when nothing is known of it."""
    for base in list(value.cls.lineage())[1:]:
        if isinstance(base, Class):
            found = base.scope.slots.get(name)
            if found is not None and isinstance(found.value, Function):
                return machine.follow(found.value, with_self(value.owner, found.value, call))
        elif isinstance(value.owner.value, Instance):
            if name == "__init__":
                _construct(machine, value.owner.value, call)
                return fixed(None)
            if ".items" in value.owner.value.slots:
                items = fixed(held(value.owner.value))
                if name == "__getitem__" and len(call.args) == 1:
                    return get_item(machine, items, call.args[0], call.span)
                if name == "__setitem__" and len(call.args) == 2:
                    set_item(machine, items, *call.args)
                return builtin_method(machine, items, name, call)
            return machine.library.method(machine, value.owner, name, call)
    return fixed(None) if name == "__init__" else None


def _construct(machine: Machine, instance: Instance, call: Call) -> None:
    if ".items" in instance.slots:
        builtin_method(machine, fixed(held(instance)), "update", call)
        return
    instance.call = call
    machine.library.construct(machine, instance, call)


_DICTS = {"dict", "OrderedDict", "defaultdict", "UserDict"}


def instantiate(machine: Machine, cls: Class, call: Call) -> Fact:
    """An object of a class of the script."""
    instance = Instance(cls, call)
    fact = fixed(instance, call.span)
    names = {base.name.rpartition(".")[2] for base in cls.lineage() if isinstance(base, Symbol)}
    if cls.is_enumeration:
        return _member(cls, call)
    if _DICTS & names:
        instance.slots[".items"] = Table()
    init = cls.find("__init__")
    if init is not None and isinstance(init.value, Function):
        machine.follow(init.value, call.upon(fact))
    elif cls.is_record or (cls.all_fields() and (call.args or call.kwargs or (instance.library and not cls.find("__call__")))):
        fill_record(machine, instance, call)
    elif instance.library:
        _construct(machine, instance, call)
    elif call.args and not names:
        instance.slots[".args"] = call.args
    return fact


def _member(cls: Class, call: Call) -> Fact:
    for fact in cls.scope.slots.values():
        if isinstance(fact, Fact) and call.args and fact.known and call.args[0].known and fact.value == call.args[0].value:
            return fact
    return call.args[0] if call.args else opaque("a member of an enumeration", "enum", (), call.span)


def fill_record(machine: Machine, instance: Instance, call: Call, given: Mapping[str, Fact] | None = None) -> None:
    """Set the fields of a dataclass-like object from its call (`given` wins: a parsed command line)."""
    assert isinstance(instance.cls, Class)
    fields = instance.cls.all_fields()
    own = [field for field in fields.values() if not _is_classvar(field)]
    library = isinstance(next(iter(instance.cls.bases), None), Symbol) and "NamedTuple" not in instance.library
    for index, field in enumerate(own):
        value = call.kwargs.get(field.name)
        if value is None and not library and index < len(call.args):
            value = call.args[index]
        if value is None and given is not None:
            value = given.get(field.name)
        if value is None and call.open:
            value = opaque(call.open, f"field:{field.name}", (), field.span)
        if value is None:
            value = field.default
        if value is not None:
            value = linked(_validated(machine, instance.cls, field, value), call.span, f"`{field.name}`")
            if value.status is Status.CHOICES and ABSENT in value.choices:
                known = [Fact(v, Status.FIXED, value.origin) for v in value.choices if v is not ABSENT]
                value = merge([*known, field.default] if field.default is not None else known)
            machine.write(instance, field.name, value)
    extra = {k: v for k, v in {**(given or {}), **call.kwargs}.items() if k not in fields}
    if instance.library:
        _construct(machine, instance, Call(call.name, call.args if library else (), {**extra}, call.span, call.open))
    post = instance.cls.find("__post_init__")
    if post is not None and isinstance(post.value, Function):
        machine.follow(post.value, Call("__post_init__", (fixed(instance),), {}, call.span))


def record_method(machine: Machine, owner: Fact, name: str, call: Call) -> Fact | None:
    """What a NamedTuple or pydantic class has beside the script's own methods; None for any other name."""
    value = owner.value
    if isinstance(value, Class):
        given = call.args[0].value if call.args else None
        if name in {"model_validate", "parse_obj"} and isinstance(given, Table) and call.args[0].known:
            return instantiate(
                machine, value, Call(value.name, (), {str(k): f for k, f in given.entries()}, call.span, given.open)
            )
        return None
    if name in {"_asdict", "model_dump", "dict"}:
        return fixed(Table(attributes_of(value)), call.span)
    if name in {"_replace", "model_copy"}:
        made = copied(owner)
        update = call.kwargs.get("update")
        changes = dict(update.value.entries()) if update is not None and isinstance(update.value, Table) else call.kwargs
        made.value.slots.update(changes)
        return made
    return None


def _validated(machine: Machine, cls: Class, field: Field, value: Fact) -> Fact:
    """pydantic makes a nested model of a dict."""
    if not isinstance(value.value, Table) or not value.known or value.value.open:
        return value
    if not any(isinstance(base, Symbol) and base.name.endswith(("BaseModel", "BaseSettings")) for base in cls.lineage()):
        return value
    named = field.annotation.id if isinstance(field.annotation, ast.Name) else ""
    scope = cls.scope.parent
    found = scope.slots.get(named) if scope is not None else None
    if not isinstance(found, Fact) or not isinstance(found.value, Class) or not found.value.is_record:
        return value
    return machine.call(found, Call(found.value.name, (), {str(k): f for k, f in value.value.entries()}, field.span))


def _is_classvar(field: Field) -> bool:
    node = field.annotation.value if isinstance(field.annotation, ast.Subscript) else field.annotation
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    written = node.value if isinstance(node, ast.Constant) else name
    return "ClassVar" in str(written)
