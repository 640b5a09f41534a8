"""What an abstract value can be, and how two of them join.

Every value is a `Fact`. Its `value` is a plain constant (None, bool, int, float, complex, str, bytes, Ellipsis) or one of
the types here. An unknown fact may carry an `Opaque` value that remembers what it was computed from, so that a loss
leads back to the model and the batch it came from.

One module, since the types refer to each other and joining two values needs all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from memlint.facts import Fact, Origin, Status, fixed
from memlint.source import Span
from memlint.typed import Any, NamedTuple

MAX_CHOICES = 16
"""More alternatives than this are no longer a closed set that helps anybody."""
MAX_ORIGINS = 8
"""Links kept in a chain of provenance."""


class _Absent:
    """The value of a key or attribute that one branch sets and another leaves out."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


class Symbol(NamedTuple):
    """A name of a module that is not read: `torch.bfloat16`, `transformers.Trainer`, `data.PackedTokens`."""

    name: str


_BIRTHS = count()
"""Numbers objects in the order of their making: what a branch makes itself is younger than the branch."""


class Object:
    """Something mutable, compared by identity. All its state is in `slots`, so that a branch can be undone and joined."""

    __slots__ = ("born", "slots")

    def __init__(self, slots: dict[Any, Any] | None = None) -> None:
        self.slots: dict[Any, Any] = slots if slots is not None else {}
        self.born = next(_BIRTHS)


class _Rest:
    """The slot of a `Table` or `Array` with the reason why more entries may exist than are known."""


REST = _Rest()


class Table(Object):
    """A dict: `slots` maps constant keys to facts."""

    __slots__ = ()

    @property
    def open(self) -> str:
        """Why further keys may exist; empty when all are known."""
        return str(self.slots.get(REST, ""))

    def entries(self) -> Iterator[tuple[Any, Fact]]:
        """The known keys and their facts."""
        return ((key, fact) for key, fact in self.slots.items() if key is not REST)


class Array(Object):
    """A list, tuple, set or frozenset: `slots["items"]` is a tuple of facts."""

    __slots__ = ("kind",)

    def __init__(self, items: Iterable[Fact], kind: str = "list", open_: str = "") -> None:
        super().__init__({"items": tuple(items), REST: open_})
        self.kind = kind

    @property
    def items(self) -> tuple[Fact, ...]:
        """The known members in order."""
        items: tuple[Fact, ...] = self.slots["items"]
        return items

    @property
    def open(self) -> str:
        """Why further members may exist; empty when all are known."""
        return str(self.slots[REST])


class Call:
    """A call with its evaluated arguments."""

    def __init__(self, name: str, args: tuple[Fact, ...], kwargs: dict[str, Fact], span: Span, open: str = "") -> None:
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.span = span
        self.open = open
        """Why further arguments may have been passed (`**unknown`); empty when all are known."""

    def argument(self, name: str, position: int | None = None) -> Fact | None:
        """The argument given by keyword or position, or None."""
        if name in self.kwargs:
            return self.kwargs[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return None


class Instance(Object):
    """An object of a class: a library's (`cls` is a Symbol) or one written in the script (`cls` is a Class).

    `slots` are its attributes; names that start with `.` belong to the models of the frameworks.
    """

    __slots__ = ("call", "cls")

    def __init__(self, cls: Symbol | Class, call: Call, slots: dict[Any, Any] | None = None) -> None:
        super().__init__(slots)
        self.cls = cls
        self.call = call

    @property
    def library(self) -> str:
        """The dotted name of its library class, or of the nearest library base of a class written here; else empty."""
        if isinstance(self.cls, Symbol):
            return self.cls.name
        bases = [base.name for base in self.cls.lineage() if isinstance(base, Symbol)]
        return next((name for name in bases if not name.endswith(_MARKERS)), bases[0] if bases else "")


_MARKERS = ("Mixin", "typing.Generic", "abc.ABC", "typing.Protocol", "builtins.object")
"""Ends of names of bases that do not say what an object is."""


class Attributes(Table):
    """The `__dict__` of an object: what is written into it is an attribute."""

    __slots__ = ("owner",)

    def __init__(self, owner: Instance) -> None:
        super().__init__(owner.slots)
        self.owner = owner

    @property
    def open(self) -> str:
        """See `Table.open`."""
        defaults = isinstance(self.owner.cls, Symbol) and ".parsed" not in self.slots
        return super().open or ("attributes with library defaults" if defaults else "")

    def entries(self) -> Iterator[tuple[Any, Fact]]:
        """See `Table.entries`."""
        return ((key, fact) for key, fact in super().entries() if not str(key).startswith("."))


class Scope(Object):
    """Variables; `slots` maps names to facts."""

    __slots__ = ("globals", "of_class", "parent", "shared")

    def __init__(self, parent: Scope | None = None, of_class: bool = False) -> None:
        super().__init__()
        self.of_class = of_class
        self.parent = parent
        self.globals: Scope = parent.globals if parent else self
        self.shared: set[str] = set()
        """Names declared `global` or `nonlocal` here."""


class Module:
    """A module of the project that was read."""

    def __init__(self, name: str, path: str, scope: Scope) -> None:
        self.name = name
        self.path = path
        self.scope = scope


class Pending(NamedTuple):
    """A name that an import binds; its module is looked for when the name is used."""

    module: str
    level: int
    name: str
    """The name inside the module; empty for the module itself."""
    path: str
    """The importing file."""
    span: Span


class Function:
    """A function or lambda written in the script, with the scope it closes over."""

    def __init__(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        scope: Scope,
        home: Any,
        name: str,
        defaults: tuple[Fact, ...] = (),
        kw_defaults: dict[str, Fact] | None = None,
    ) -> None:
        self.node = node
        self.scope = scope
        self.home = home
        """The frame that defined it: its text and module."""
        self.name = name
        self.defaults = defaults
        self.kw_defaults: dict[str, Fact] = {} if kw_defaults is None else kw_defaults
        self.decorators: tuple[Fact, ...] = ()
        self.owner: Class | None = None


class Field:
    """An annotated name of a class body: a dataclass field."""

    def __init__(self, name: str, annotation: ast.expr, default: Fact | None, span: Span, aliases: tuple[str, ...] = ()) -> None:
        self.name = name
        self.annotation = annotation
        self.default = default
        self.span = span
        self.aliases = aliases
        """Further names on a command line (simple-parsing's `field(alias="-b")`)."""


class Class:
    """A class written in the script."""

    def __init__(
        self, name: str, bases: tuple[Any, ...], scope: Scope, fields: dict[str, Field], decorators: tuple[Fact, ...], span: Span
    ) -> None:
        self.name = name
        self.bases = bases
        self.scope = scope
        self.fields = fields
        self.decorators = decorators
        self.span = span

    def lineage(self, depth: int = 8) -> Iterator[Class | Symbol]:
        """This class and its bases, nearest first (depth first, as single inheritance has it)."""
        yield self
        for base in self.bases:
            if isinstance(base, Class) and depth:
                yield from base.lineage(depth - 1)
            elif isinstance(base, Symbol):
                yield base

    def find(self, name: str) -> Fact | None:
        """A class attribute or method, looked up in the classes that were read."""
        for cls in self.lineage():
            if isinstance(cls, Class) and name in cls.scope.slots:
                found: Fact = cls.scope.slots[name]
                return found
        return None

    def all_fields(self) -> dict[str, Field]:
        """The dataclass fields, those of the bases first."""
        found: dict[str, Field] = {}
        for cls in reversed(list(self.lineage())):
            if isinstance(cls, Class):
                found.update(cls.fields)
        return found

    @property
    def is_enumeration(self) -> bool:
        """An `enum` class: its attributes are its members."""
        names = {base.name.rpartition(".")[2] for base in self.lineage() if isinstance(base, Symbol)}
        return bool(names & {"Enum", "IntEnum", "StrEnum"})

    @property
    def is_record(self) -> bool:
        """A dataclass, NamedTuple, attrs or pydantic class: its constructor takes its fields."""
        names = {base.name.rpartition(".")[2] for base in self.lineage() if isinstance(base, Symbol)}
        if names & {"NamedTuple", "BaseModel", "BaseSettings", "TypedDict", "JsonDataclass", "Serializable"}:
            return True
        return any(_names_dataclass(fact.value) for c in self.lineage() if isinstance(c, Class) for fact in c.decorators)


def _names_dataclass(value: Any) -> bool:
    name = value.name if isinstance(value, Symbol) else value.library if isinstance(value, Instance) else ""
    return name.rpartition(".")[2] in {"dataclass", "define", "frozen", "attrs", "s", "configclass"}


class Bound:
    """A method with its object: of the script (`function` is a Function) or a builtin or library one (a name)."""

    def __init__(self, owner: Fact, function: Function | str) -> None:
        self.owner = owner
        self.function = function


class Native:
    """A callable that memlint models itself, given by a framework (a parsed command, a decorator)."""

    def __init__(self, name: str, invoke: Callable[[Call], Fact], parts: tuple[Fact, ...] = ()) -> None:
        self.name = name
        self.invoke = invoke
        self.parts = parts
        """What it was made from (the function of a `partial`)."""


class Opaque:
    """What an unknown value was computed from: `operation` names the step, `parents` are its inputs."""

    def __init__(
        self, operation: str, parents: tuple[Fact, ...] = (), call: Call | None = None, contexts: tuple[Fact, ...] = ()
    ) -> None:
        self.operation = operation
        self.parents = parents
        self.call = call
        self.contexts = contexts
        """The `with` blocks that were active (kept for calls)."""
        self.born: int = next(_BIRTHS)

    def ancestry(self, limit: int = 400) -> Iterator[Any]:
        """This value and everything it was computed from, breadth first; each object once."""
        seen: set[int] = set()
        queue: list[Any] = [self]
        while queue and limit:
            value = queue.pop(0)
            if id(value) in seen:
                continue
            seen.add(id(value))
            limit -= 1
            yield value
            if isinstance(value, Opaque):
                queue.extend(v for parent in value.parents for v in possible(parent))
            elif isinstance(value, Array):
                queue.extend(v for item in value.items for v in possible(item))
            elif isinstance(value, Table):
                queue.extend(v for _, item in value.entries() for v in possible(item))


def possible(fact: Fact) -> tuple[Any, ...]:
    """The objects a fact may stand for: its values, or the trace of an unknown one."""
    if fact.status is Status.UNKNOWN:
        return (fact.value,) if fact.value is not None else ()
    return fact.values


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
