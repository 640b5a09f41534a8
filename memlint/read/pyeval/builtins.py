"""Builtin functions and the parts of the standard library that carry settings: conversions, copies, paths, environment."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

from memlint.facts import Fact, fixed
from memlint.read.pyeval.containers import CONTAINER_CALLS, extreme
from memlint.read.pyeval.joins import Unknowable, combine, constant, linked, weaken
from memlint.read.pyeval.libraries import unread
from memlint.read.pyeval.machine import Halted, Machine
from memlint.read.pyeval.objects import OBJECT_CALLS
from memlint.read.pyeval.operators import MAX_TEXT, binary, truth
from memlint.read.pyeval.sequences import as_value, sequence
from memlint.read.pyeval.system import SYSTEM_CALLS
from memlint.read.pyeval.values import Array, Call, Instance, Opaque, Symbol, Table
from memlint.typed import Any

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
            if isinstance(value, Symbol) and kind is str and not unread(value):
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


def _greatest(machine: Machine, call: Call) -> Fact | None:
    return extreme(machine, call, last=True) if "key" in call.kwargs else _numeric(max)(machine, call)


def _least(machine: Machine, call: Call) -> Fact | None:
    """`min`; what a tokenizer's own limit caps is taken as asked for, for few ask for more."""
    if "key" in call.kwargs:
        return extreme(machine, call, last=False)
    limits = [a for a in call.args if isinstance(a.value, Opaque) and a.value.operation == "attribute:model_max_length"]
    rest = tuple(a for a in call.args if a not in limits)
    if not limits or not rest:
        return _numeric(min)(machine, call)
    least = _numeric(min)(machine, Call(call.name, rest, {}, call.span)) if len(rest) > 1 else rest[0]
    return linked(weaken(least), call.span, "the tokenizer's limit may be shorter") if least is not None else None


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


# --- objects --------------------------------------------------------------------------------------------------------


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


def _eval(machine: Machine, call: Call) -> Fact | None:
    """`eval` of a text that is a literal or arithmetic over literals (`type=eval` of an option)."""

    def one(value: Any) -> Any:
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise Unknowable("a text that is evaluated and not known")
        try:
            return as_value(_computed(ast.parse(value.strip(), mode="eval").body), call)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise Unknowable(f"`eval` of {value[:40]!r}") from None

    return combine(one, call.args[:1], call.span, "eval") if call.args else None


def _computed(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp):
        return binary(node.op, _computed(node.left), _computed(node.right))
    return ast.literal_eval(node)


def _divmod(machine: Machine, call: Call) -> Fact | None:
    def one(a: Any, b: Any) -> Any:
        if not (isinstance(a, int) and isinstance(b, int) and b):
            raise Unknowable("a division that is not known")
        return as_value(divmod(a, b), call)

    return combine(one, call.args, call.span, "divmod") if len(call.args) == 2 else None


def _ceil(value: float) -> int:
    return math.ceil(value)


def _log2(value: Any) -> float:
    return math.log2(value)


def _ignored(machine: Machine, call: Call) -> Fact | None:
    return fixed(None, call.span)


_CALLS: dict[str, Callable[[Machine, Call], Fact | None]] = {
    **OBJECT_CALLS,
    **SYSTEM_CALLS,
    **CONTAINER_CALLS,
    "builtins.int": _convert(int, 0),
    "builtins.float": _convert(float, 0.0),
    "builtins.str": _convert(str, ""),
    "builtins.bool": _convert(bool, False),
    "builtins.repr": _convert(repr, ""),
    "builtins.abs": _numeric(abs),
    "builtins.round": _numeric(round),
    "builtins.pow": _numeric(lambda a, b: a**b if abs(b) < 64 and abs(a) < 1e9 else _refuse()),
    "builtins.max": _greatest,
    "builtins.min": _least,
    "builtins.sum": _numeric(_sum),
    "builtins.any": _any,
    "builtins.all": _all,
    "builtins.print": _ignored,
    "math.ceil": _numeric(_ceil),
    "math.floor": _numeric(math.floor),
    "numpy.ceil": _numeric(_ceil),
    "numpy.floor": _numeric(math.floor),
    "builtins.divmod": _divmod,
    "math.sqrt": _numeric(math.sqrt),
    "math.log2": _numeric(_log2),
    "math.gcd": _numeric(math.gcd),
    "math.prod": _numeric(lambda *values: math.prod(values)),
    "ast.literal_eval": _literal,
    "builtins.eval": _eval,
}


def _refuse() -> Any:
    raise Unknowable("the number is too large to compute here")
