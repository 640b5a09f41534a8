"""What an abstract value can be.

Every value is a `Fact`. Its `value` is a plain constant (None, bool, int, float, complex, str, bytes, Ellipsis) or one of
the types here. An unknown fact may carry an `Opaque` value that remembers what it was computed from, so that a loss
leads back to the model and the batch it came from.

One module, since the types refer to each other. `memlint.read.pyeval.joins` makes one fact of several.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from memlint.facts import Fact, Status
from memlint.source import Span
from memlint.typed import Any, NamedTuple


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

    def upon(self, owner: Fact) -> Call:
        """The same call with an object before its arguments."""
        return Call(self.name, (owner, *self.args), self.kwargs, self.span, self.open)


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
    """`dataclass`, bare or called: `@dataclass(frozen=True)`."""
    if isinstance(value, Opaque):
        name = value.operation.removeprefix("call:")
    else:
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
