"""Builtin functions and the parts of the standard library that carry settings: conversions, copies, paths, environment."""

from __future__ import annotations

import ast
import math
import posixpath
from collections.abc import Callable
from typing import Any

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.environment import variable
from memlint.read.pyeval.files import execute_text
from memlint.read.pyeval.machine import Halted, Machine
from memlint.read.pyeval.operators import MAX_TEXT, truth
from memlint.read.pyeval.values import (
    REST,
    Array,
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
    Unknowable,
    combine,
    constant,
    linked,
    merge,
    opaque,
)

MAX_RANGE = 64
"""Longest `range` that is written out."""

BUILTINS = frozenset(
    """abs all any bool bytes callable classmethod complex dict divmod enumerate eval exec exit filter float format frozenset
    getattr globals hasattr hash id input int isinstance issubclass iter len list locals map max min next object open pow
    print property quit range repr reversed round set setattr sorted staticmethod str sum super tuple type vars zip
    __import__ breakpoint delattr dir ord chr hex memoryview slice""".split()  # noqa: SIM905
)


def call_builtin(machine: Machine, name: str, call: Call) -> Fact | None:
    """The result of a builtin or standard-library function; None when it is not modelled."""
    if name in _HALTS:
        raise Halted
    handler = _CALLS.get(name)
    return handler(machine, call) if handler is not None else None


_HALTS = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "os._exit", "os.abort"})


# --- conversions ----------------------------------------------------------------------------------------------------


def _convert(kind: Callable[[Any], Any], empty: Any) -> Callable[[Machine, Call], Fact | None]:
    def convert(machine: Machine, call: Call) -> Fact | None:
        if not call.args:
            return fixed(empty, call.span)

        def one(value: Any, *rest: Any) -> Any:
            if isinstance(value, Symbol) and kind is str:
                return value.name
            if not constant(value) or value is Ellipsis:
                if kind is bool:
                    return truth(value)
                raise Unknowable(f"`{kind.__name__}` of an object")
            if isinstance(value, (str, bytes)) and len(value) > MAX_TEXT:
                raise Unknowable("the text is too long to convert")
            try:
                return int(value, *rest) if kind is int and rest else kind(value)
            except (TypeError, ValueError, OverflowError) as error:
                raise Unknowable(f"the conversion fails: {error}") from None

        return combine(one, call.args[:2], call.span, kind.__name__)

    return convert


def _numeric(function: Callable[..., Any]) -> Callable[[Machine, Call], Fact | None]:
    """A function of numbers, given as arguments or as one known sequence."""

    def apply(machine: Machine, call: Call) -> Fact | None:
        args = call.args
        if len(args) == 1 and isinstance(args[0].value, (Array, Table, Instance)) and args[0].known:
            members = sequence(args[0].value)
            if members is None or not members:
                return None
            args = tuple(members)

        def one(*values: Any) -> Any:
            if not all(isinstance(v, (int, float, str)) for v in values):
                raise Unknowable("arithmetic on something that is not a number")
            try:
                return function(*values)
            except (TypeError, ValueError, ArithmeticError) as error:
                raise Unknowable(f"the arithmetic fails: {error}") from None

        return combine(one, args, call.span, call.name)

    return apply


def _max(*values: Any) -> Any:
    return max(values)


def _min(*values: Any) -> Any:
    return min(values)


def _sum(*values: Any) -> Any:
    return sum(values)


def _any(machine: Machine, call: Call) -> Fact | None:
    return _fold(call, any)


def _all(machine: Machine, call: Call) -> Fact | None:
    return _fold(call, all)


def _fold(call: Call, function: Callable[[list[bool]], bool]) -> Fact | None:
    members = sequence(call.args[0].value) if call.args and call.args[0].known else None
    if members is None:
        return None
    return combine(lambda *values: function([truth(v) for v in values]), tuple(members), call.span, call.name)


# --- containers -----------------------------------------------------------------------------------------------------


def sequence(value: Any) -> list[Fact] | None:
    """The members of a known sequence, short ranges included."""
    if isinstance(value, Array):
        return None if value.open else list(value.items)
    if isinstance(value, Table):
        return None if value.open else [fixed(key) for key, _ in value.entries()]
    if isinstance(value, str):
        return [fixed(char) for char in value[:MAX_RANGE]] if len(value) <= MAX_RANGE else None
    if isinstance(value, Instance) and ".range" in value.slots:
        bounds: tuple[Fact, ...] = value.slots[".range"]
        if all(f.known and isinstance(f.value, int) for f in bounds):
            try:
                numbers = range(*(f.value for f in bounds))
            except (ValueError, TypeError):
                return None
            if len(numbers) <= MAX_RANGE:
                return [Fact(n, Status.FIXED, bounds[-1].origin) for n in numbers]
    return None


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
            table.slots.update(source.value.slots)
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
    if not call.args:
        return None
    members = sequence(call.args[0].value) if call.args[0].known else None
    if members is None:
        return None
    return fixed(Array([fixed(Array((fixed(i), m), "tuple")) for i, m in enumerate(members)]), call.span)


def _zip(machine: Machine, call: Call) -> Fact | None:
    columns = [sequence(a.value) if a.known else None for a in call.args]
    if not columns or any(c is None for c in columns):
        return None
    rows = zip(*(c for c in columns if c is not None), strict=False)
    return fixed(Array([fixed(Array(row, "tuple")) for row in rows]), call.span)


def _sorted(machine: Machine, call: Call) -> Fact | None:
    members = sequence(call.args[0].value) if call.args and call.args[0].known else None
    if members is None or call.kwargs or not all(m.known and constant(m.value) for m in members):
        return None
    try:
        return fixed(Array(sorted(members, key=lambda m: m.value)), call.span)
    except TypeError:
        return None


def _map(machine: Machine, call: Call) -> Fact | None:
    members = sequence(call.args[1].value) if len(call.args) == 2 and call.args[1].known else None
    if members is None:
        return None
    return fixed(Array([machine.call(call.args[0], Call("map", (m,), {}, call.span)) for m in members]), call.span)


def _next(machine: Machine, call: Call) -> Fact | None:
    members = sequence(call.args[0].value) if call.args and call.args[0].known else None
    if members:
        return members[0]
    return opaque("the next element of something", "element", call.args, call.span)


# --- objects --------------------------------------------------------------------------------------------------------


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
    if len(call.args) == 3 and call.args[1].known and isinstance(call.args[1].value, str):
        machine.semantics.set_attribute(machine, call.args[0], call.args[1].value, call.args[2])
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

    return combine(one, call.args[:1], call.span, "isinstance")


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
        table = Table(attributes_of(value))
        if isinstance(value.cls, Symbol) and ".parsed" not in value.slots:
            table.slots[REST] = "attributes with library defaults"
        return fixed(table, call.span)
    return fixed(value.scope, call.span) if isinstance(value, Module) else None


def _globals(machine: Machine, call: Call) -> Fact | None:
    return fixed(machine.frame.scope.globals, call.span)


def _locals(machine: Machine, call: Call) -> Fact | None:
    return fixed(Table(dict(machine.frame.scope.slots)), call.span)


def _copy(machine: Machine, call: Call) -> Fact | None:
    return copied(call.args[0], deep=call.name.endswith("deepcopy")) if call.args else None


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
    fields = {n: Field(n, annotation, None, call.span) for n in listed if isinstance(n, str)}
    return fixed(Class(str(call.args[0].value), (Symbol("typing.NamedTuple"),), Scope(), fields, (), call.span), call.span)


# --- files and paths ------------------------------------------------------------------------------------------------


def _join_path(machine: Machine, call: Call) -> Fact | None:
    def one(*parts: Any) -> str:
        if not all(isinstance(p, str) for p in parts):
            raise Unknowable("a path that is not known")
        return str(posixpath.join(*parts))

    return combine(one, call.args, call.span, "path") if call.args else None


def _path_part(function: Callable[[str], str]) -> Callable[[Machine, Call], Fact | None]:
    def one(value: Any) -> str:
        if not isinstance(value, str):
            raise Unknowable("a path that is not known")
        return function(value)

    return lambda machine, call: combine(one, call.args[:1], call.span, "path") if call.args else None


def _open(machine: Machine, call: Call) -> Fact | None:
    path = call.argument("file", 0)
    if path is None:
        return None
    return fixed(Instance(Symbol("builtins.open"), call, {".path": path}), call.span)


def _exec(machine: Machine, call: Call) -> Fact | None:
    return execute_text(machine, call)


def _literal(machine: Machine, call: Call) -> Fact | None:
    def one(value: Any) -> Any:
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise Unknowable("a literal that is not known")
        try:
            read = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise Halted from None
        return as_value(read, call)

    return combine(one, call.args[:1], call.span, "literal") if call.args else None


def as_value(value: Any, call: Call) -> Any:
    """A plain Python value as an abstract one."""
    if isinstance(value, dict):
        return Table({k: fixed(as_value(v, call), call.span) for k, v in value.items() if constant(k)})
    if isinstance(value, (list, tuple, set)):
        return Array([fixed(as_value(v, call), call.span) for v in value], type(value).__name__)
    return value


# --- environment ----------------------------------------------------------------------------------------------------


def _getenv(machine: Machine, call: Call) -> Fact | None:
    if not call.args:
        return None
    name = call.args[0]
    otherwise = call.argument("default", 1) or fixed(None, call.span)
    if name.status is Status.UNKNOWN:
        return opaque(name.reason, "environ", (name,), call.span)
    return merge([variable(machine, value, otherwise, call.span) for value in name.values])


def _setdefault_env(machine: Machine, call: Call) -> Fact | None:
    if len(call.args) == 2 and call.args[0].known and isinstance(call.args[0].value, str):
        launched = machine.launch.env.get(call.args[0].value) if machine.launch is not None else None
        if launched is None:
            machine.environ.setdefault(call.args[0].value, call.args[1])
    return None


def _ceil(value: float) -> int:
    return math.ceil(value)


def _log2(value: Any) -> float:
    return math.log2(value)


def _ignored(machine: Machine, call: Call) -> Fact | None:
    return fixed(None, call.span)


def _true(machine: Machine, call: Call) -> Fact | None:
    return fixed(True, call.span)


def _first(machine: Machine, call: Call) -> Fact | None:
    return call.args[0] if call.args else None


_NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace", "easydict.EasyDict", "box.Box", "munch.Munch", "munch.munchify",
               "ml_collections.ConfigDict", "addict.Dict")  # fmt: skip

_CALLS: dict[str, Callable[[Machine, Call], Fact | None]] = {
    "builtins.int": _convert(int, 0),
    "builtins.float": _convert(float, 0.0),
    "builtins.str": _convert(str, ""),
    "builtins.bool": _convert(bool, False),
    "builtins.repr": _convert(repr, ""),
    "builtins.abs": _numeric(abs),
    "builtins.round": _numeric(round),
    "builtins.pow": _numeric(lambda a, b: a**b if abs(b) < 64 and abs(a) < 1e9 else _refuse()),
    "builtins.max": _numeric(_max),
    "builtins.min": _numeric(_min),
    "builtins.sum": _numeric(_sum),
    "builtins.any": _any,
    "builtins.all": _all,
    "builtins.list": _array("list"),
    "builtins.tuple": _array("tuple"),
    "builtins.set": _array("set"),
    "builtins.frozenset": _array("frozenset"),
    "builtins.dict": _dict,
    "collections.OrderedDict": _dict,
    "collections.namedtuple": _namedtuple,
    "builtins.len": _len,
    "builtins.range": _range,
    "builtins.enumerate": _enumerate,
    "builtins.zip": _zip,
    "builtins.sorted": _sorted,
    "builtins.map": _map,
    "builtins.next": _next,
    "builtins.iter": _first,
    "builtins.reversed": lambda machine, call: None,
    "builtins.getattr": _getattr,
    "builtins.setattr": _setattr,
    "builtins.hasattr": _hasattr,
    "builtins.isinstance": _isinstance,
    "builtins.type": _type,
    "builtins.vars": _vars,
    "builtins.globals": _globals,
    "builtins.locals": _locals,
    "builtins.print": _ignored,
    "builtins.open": _open,
    "builtins.exec": _exec,
    "copy.copy": _copy,
    "copy.deepcopy": _copy,
    "dataclasses.replace": _replace,
    "dataclasses.asdict": _asdict,
    "dataclasses.field": _field,
    "attrs.field": _field,
    "attr.ib": _field,
    "pydantic.Field": _field,
    "simple_parsing.field": _field,
    "functools.partial": _partial,
    "math.ceil": _numeric(_ceil),
    "math.floor": _numeric(math.floor),
    "math.sqrt": _numeric(math.sqrt),
    "math.log2": _numeric(_log2),
    "math.gcd": _numeric(math.gcd),
    "math.prod": _numeric(lambda *values: math.prod(values)),
    "ast.literal_eval": _literal,
    "os.path.join": _join_path,
    "os.path.dirname": _path_part(posixpath.dirname),
    "os.path.basename": _path_part(posixpath.basename),
    "os.path.abspath": _first,
    "os.path.realpath": _first,
    "os.path.expanduser": _first,
    "os.path.normpath": _path_part(posixpath.normpath),
    "os.fspath": _first,
    "pathlib.Path": _join_path,
    "pathlib.PurePath": _join_path,
    "os.getenv": _getenv,
    "os.environ.get": _getenv,
    "os.environ.setdefault": _setdefault_env,
    **dict.fromkeys(_NAMESPACES, _namespace),
}


def _refuse() -> Any:
    raise Unknowable("the number is too large to compute here")
