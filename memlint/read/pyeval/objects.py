"""Objects: attributes by name, types, copies, dataclass helpers, namespaces."""

from __future__ import annotations

import ast
from collections.abc import Callable

from memlint.facts import Fact, Status, default, fixed
from memlint.read.pyeval.joins import Unknowable, combine, constant, linked, merge, opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.sequences import sequence
from memlint.read.pyeval.values import (
    Array,
    Attributes,
    Call,
    Class,
    Field,
    Instance,
    Module,
    Native,
    Object,
    Scope,
    Symbol,
    Table,
)
from memlint.typed import Any


def _getattr(machine: Machine, call: Call) -> Fact | None:
    if len(call.args) < 2 or not call.args[1].known or not isinstance(call.args[1].value, str):
        return _dynamic_attribute(machine, call)
    owner, name = call.args[0], call.args[1].value
    fact = machine.semantics.attribute(machine, owner, name, call.span)
    if len(call.args) > 2 and fact.status is Status.UNKNOWN and isinstance(owner.value, (Instance, Class)) and owner.known:
        return call.args[2]
    return fact


def _dynamic_attribute(machine: Machine, call: Call) -> Fact | None:
    if len(call.args) < 2 or call.args[1].status is not Status.CHOICES:
        return None
    name = call.args[1]
    found = [machine.semantics.attribute(machine, call.args[0], v, call.span) for v in name.choices if isinstance(v, str)]
    return merge(found, name.decided_by if len(found) == 2 else "") if found else None


def _setattr(machine: Machine, call: Call) -> Fact | None:
    if len(call.args) == 3:
        owner, name, value = call.args
        if name.known and isinstance(name.value, str):
            machine.semantics.set_attribute(machine, owner, name.value, value)
        elif owner.known and isinstance(owner.value, Instance):
            if name.status is Status.CHOICES:
                for one in (n for n in name.choices if isinstance(n, str)):
                    old = machine.semantics.attribute(machine, owner, one, call.span)
                    machine.semantics.set_attribute(machine, owner, one, merge([old, value]))
            else:
                machine.obscure(owner.value, f"an attribute of unknown name is set at line {call.span.line}")
    return fixed(None)


def _hasattr(machine: Machine, call: Call) -> Fact | None:
    if len(call.args) != 2 or not call.args[1].known:
        return None
    owner, name = call.args[0].value, call.args[1].value
    if isinstance(owner, Instance):
        if name in owner.slots or (isinstance(owner.cls, Class) and owner.cls.find(name)):
            return fixed(True, call.span)
        if isinstance(owner.cls, Symbol) and "odel" in owner.cls.name:
            return fixed(True, call.span)
        if ".parsed" in owner.slots:
            return fixed(False, call.span)
    if isinstance(owner, Symbol) and isinstance(name, str) and owner.name.rpartition(".")[2][:1].isupper():
        return default(True, "a script asks a library's class for what it has", call.span)
    return None


def _isinstance(machine: Machine, call: Call) -> Fact | None:
    if len(call.args) != 2 or not call.args[1].known:
        return None
    kinds = call.args[1].value.items if isinstance(call.args[1].value, Array) else (call.args[1],)
    classes = [k.value for k in kinds]

    def one(value: Any) -> bool:
        answers = [_is_a(value, cls) for cls in classes]
        if True in answers:
            return True
        if None in answers:
            raise Unknowable("the type is not known")
        return False

    tested = combine(one, call.args[:1], call.span, "isinstance")
    return opaque(tested.reason, "isinstance", call.args, call.span) if tested.status is Status.UNKNOWN else tested


_TYPES = {"int": int, "float": float, "str": str, "bool": bool, "bytes": bytes, "complex": complex}


def _is_a(value: Any, cls: Any) -> bool | None:
    if isinstance(cls, Class):
        return isinstance(value, Instance) and isinstance(value.cls, Class) and cls in value.cls.lineage()
    name = cls.name.rpartition(".")[2] if isinstance(cls, Symbol) else ""
    if name in _TYPES and constant(value):
        return isinstance(value, _TYPES[name])
    if isinstance(value, Array):
        return name == value.kind or name in {"Sequence", "Iterable", "Collection"}
    if isinstance(value, Table):
        return name in {"dict", "Mapping", "MutableMapping", "Collection", "Iterable"}
    if constant(value) and (isinstance(cls, Symbol)):
        return False
    return None


def _type(machine: Machine, call: Call) -> Fact | None:
    if len(call.args) != 1 or not call.args[0].known:
        return None
    value = call.args[0].value
    if isinstance(value, Instance):
        return fixed(value.cls, call.span)
    if isinstance(value, (Array, Table)):
        return fixed(Symbol(f"builtins.{value.kind if isinstance(value, Array) else 'dict'}"), call.span)
    return fixed(Symbol(f"builtins.{type(value).__name__}"), call.span) if constant(value) else None


def attributes_of(instance: Instance) -> dict[Any, Any]:
    """The visible attributes of an object."""
    return {k: v for k, v in instance.slots.items() if isinstance(k, str) and not k.startswith(".")}


def _vars(machine: Machine, call: Call) -> Fact | None:
    if not call.args:
        return fixed(machine.frame.scope, call.span)
    value = call.args[0].value
    if isinstance(value, Instance):
        return fixed(Attributes(value), call.span)
    return fixed(value.scope, call.span) if isinstance(value, Module) else None


def _globals(machine: Machine, call: Call) -> Fact | None:
    return fixed(machine.frame.scope.globals, call.span)


def _locals(machine: Machine, call: Call) -> Fact | None:
    return fixed(Table(dict(machine.frame.scope.slots)), call.span)


def _copy(machine: Machine, call: Call) -> Fact | None:
    return copied(call.args[0], deep=call.name.endswith("deepcopy")) if call.args else None


def _cast(_: Machine, call: Call) -> Fact | None:
    """`cast(type, value)` gives the value back."""
    return call.argument("val", 1)


def copied(fact: Fact, deep: bool = False, depth: int = 6) -> Fact:
    """A copy of a known container or object."""
    value = fact.value
    if not fact.known or not isinstance(value, Object) or isinstance(value, Scope):
        return fact
    slots = dict(value.slots)
    if deep and depth:
        for key, slot in slots.items():
            if isinstance(slot, Fact):
                slots[key] = copied(slot, True, depth - 1)
            elif isinstance(slot, tuple) and all(isinstance(s, Fact) for s in slot):
                slots[key] = tuple(copied(s, True, depth - 1) for s in slot)
    made: Object
    if isinstance(value, Array):
        made = Array((), value.kind)
        made.slots = slots
    elif isinstance(value, Instance):
        made = Instance(value.cls, value.call, slots)
    else:
        made = Table(slots)
    return Fact(made, fact.status, fact.origin)


def _replace(machine: Machine, call: Call) -> Fact | None:
    if not call.args or not isinstance(call.args[0].value, Instance):
        return None
    made = copied(call.args[0])
    made.value.slots.update(call.kwargs)
    return made


def _asdict(machine: Machine, call: Call) -> Fact | None:
    if call.args and isinstance(call.args[0].value, Instance):
        return fixed(Table(attributes_of(call.args[0].value)), call.span)
    return None


def _field(machine: Machine, call: Call) -> Fact | None:
    for name in ("default", "factory_default"):
        if name in call.kwargs:
            return linked(call.kwargs[name], call.span, "field default")
    factory = call.kwargs.get("default_factory") or call.kwargs.get("factory")
    if factory is not None:
        return machine.call(factory, Call("default_factory", (), {}, call.span))
    if call.args and call.name.endswith("Field"):
        return call.args[0]
    return opaque("a required field", "required", (), call.span)


def _partial(machine: Machine, call: Call) -> Fact | None:
    if not call.args:
        return None
    target, args, kwargs = call.args[0], call.args[1:], call.kwargs

    def invoke(later: Call) -> Fact:
        merged = Call(call.name, (*args, *later.args), {**kwargs, **later.kwargs}, later.span, later.open or call.open)
        return machine.call(target, merged)

    return fixed(Native("partial", invoke, (target, *args)), call.span)


def _namespace(machine: Machine, call: Call) -> Fact | None:
    slots: dict[Any, Any] = dict(call.kwargs)
    if call.args and isinstance(call.args[0].value, Table) and call.args[0].known:
        slots.update({k: v for k, v in call.args[0].value.entries() if isinstance(k, str)})
    return fixed(Instance(Symbol(call.name), call, slots), call.span)


def _namedtuple(machine: Machine, call: Call) -> Fact | None:
    if len(call.args) < 2 or not call.args[0].known or not call.args[1].known:
        return None
    names = call.args[1].value
    listed = names.replace(",", " ").split() if isinstance(names, str) else [f.value for f in sequence(names) or ()]
    annotation = ast.Name("object", ast.Load())
    given = call.kwargs.get("defaults")
    values = list(sequence(given.value) or ()) if given is not None and given.known else []
    last = [None] * max(len(listed) - len(values), 0) + values  # defaults belong to the last names
    fields = {n: Field(n, annotation, v, call.span) for n, v in zip(listed, last, strict=False) if isinstance(n, str)}
    return fixed(Class(str(call.args[0].value), (Symbol("typing.NamedTuple"),), Scope(), fields, (), call.span), call.span)


# --- files and paths ------------------------------------------------------------------------------------------------


_NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace", "easydict.EasyDict", "box.Box", "munch.Munch", "munch.munchify",
               "ml_collections.ConfigDict", "ml_collections.config_dict.ConfigDict", "ml_collections.FrozenConfigDict",
               "ml_collections.config_dict.FrozenConfigDict", "addict.Dict", "attrdict.AttrDict", "yacs.config.CfgNode")  # fmt: skip

OBJECT_CALLS: dict[str, Callable[[Machine, Call], Fact | None]] = {
    "collections.namedtuple": _namedtuple,
    "builtins.getattr": _getattr,
    "builtins.setattr": _setattr,
    "builtins.hasattr": _hasattr,
    "builtins.isinstance": _isinstance,
    "builtins.type": _type,
    "builtins.vars": _vars,
    "builtins.globals": _globals,
    "builtins.locals": _locals,
    "copy.copy": _copy,
    "copy.deepcopy": _copy,
    "typing.cast": _cast,
    "typing_extensions.cast": _cast,
    "dataclasses.replace": _replace,
    "dataclasses.asdict": _asdict,
    "dataclasses.field": _field,
    "attrs.field": _field,
    "attr.ib": _field,
    "pydantic.Field": _field,
    "simple_parsing.field": _field,
    "simple_parsing.choice": _field,
    "functools.partial": _partial,
    **dict.fromkeys(_NAMESPACES, _namespace),
}
