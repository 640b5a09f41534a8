"""Operators on plain constants, bounded: nothing here can take long or grow large."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from memlint.read.pyeval.joins import Unknowable, constant, same
from memlint.read.pyeval.libraries import unread
from memlint.read.pyeval.values import Array, Class, Function, Instance, Object, Symbol, Table
from memlint.typed import Any

MAX_TEXT = 20_000
"""Longest text or list that is computed."""
MAX_BITS = 4096
"""Largest integer that is computed, in bits."""


def _checked(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise Unknowable("the number is too large to compute here")
    if isinstance(value, (str, bytes)) and len(value) > MAX_TEXT:
        raise Unknowable("the text is too long to compute here")
    return value


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        if b > 0 and a.bit_length() * b > MAX_BITS:
            raise Unknowable("the number is too large to compute here")
    elif isinstance(a, float) and abs(a) > 1e6:
        raise Unknowable("the number is too large to compute here")
    return a**b


def _shift(a: Any, b: Any) -> Any:
    if not isinstance(b, int) or b > MAX_BITS:
        raise Unknowable("the number is too large to compute here")
    return a << b


def _times(a: Any, b: Any) -> Any:
    for text, count in ((a, b), (b, a)):
        if isinstance(text, (str, bytes)) and isinstance(count, int) and len(text) * count > MAX_TEXT:
            raise Unknowable("the text is too long to compute here")
    return a * b


def _modulo(a: Any, b: Any) -> Any:
    if isinstance(a, (str, bytes)):
        raise Unknowable("%-formatting of values that are not known")
    return a % b


BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _times,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _modulo,
    ast.Pow: _power,
    ast.LShift: _shift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}

UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}

_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def binary(op: ast.operator, a: Any, b: Any) -> Any:
    """`a op b` for constants; raises `Unknowable`."""
    if not (constant(a) and constant(b)):
        raise Unknowable("arithmetic on something that is not a number or text")
    try:
        return _checked(BINARY[type(op)](a, b))
    except KeyError:
        raise Unknowable("an operator that is not computed") from None
    except (TypeError, ValueError, ArithmeticError) as error:
        raise Unknowable(f"the arithmetic fails: {error}") from None


def unary(op: ast.unaryop, a: Any) -> Any:
    """`op a`; raises `Unknowable`."""
    if isinstance(op, ast.Not):
        return not truth(a)
    if not constant(a):
        raise Unknowable("arithmetic on something that is not a number")
    try:
        return UNARY[type(op)](a)
    except TypeError as error:
        raise Unknowable(f"the arithmetic fails: {error}") from None


def truth(value: Any) -> bool:
    """The truth of a value; raises `Unknowable` where it depends on more than is known."""
    if constant(value):
        return bool(value)
    if isinstance(value, (Table, Array)):
        known = len(list(value.entries())) if isinstance(value, Table) else len(value.items)
        if known or not value.open:
            return bool(known)
        raise Unknowable(value.open)
    if isinstance(value, Symbol) and (reason := unread(value)):
        raise Unknowable(reason)
    return True


def compare(op: ast.cmpop, a: Any, b: Any) -> bool:
    """`a op b`; raises `Unknowable`."""
    if isinstance(op, (ast.Is, ast.Eq)):
        return _equal(a, b)
    if isinstance(op, (ast.IsNot, ast.NotEq)):
        return not _equal(a, b)
    if isinstance(op, (ast.In, ast.NotIn)):
        return _contains(b, a) is isinstance(op, ast.In)
    if constant(a) and constant(b):
        try:
            return bool(_ORDER[type(op)](a, b))
        except TypeError as error:
            raise Unknowable(f"the comparison fails: {error}") from None
    if isinstance(a, Array) and isinstance(b, Array) and not a.open and not b.open:
        left, right = tuple(f.value for f in a.items), tuple(f.value for f in b.items)
        if all(constant(v) for v in left + right) and all(f.known for f in a.items + b.items):
            try:
                return bool(_ORDER[type(op)](left, right))
            except TypeError as error:
                raise Unknowable(f"the comparison fails: {error}") from None
    raise Unknowable("a comparison of things that are not numbers or text")


def _equal(a: Any, b: Any) -> bool:
    if constant(a) and constant(b):
        return bool(a == b)
    if same(a, b):
        return True
    if isinstance(a, Symbol) and isinstance(b, Symbol):
        if a.name.rpartition(".")[2] == b.name.rpartition(".")[2]:
            return True
        return _plain(a) == _plain(b) if _plain(a) and _plain(b) else False
    if a is None or b is None:
        present = b if a is None else a
        if isinstance(present, Symbol) and (reason := unread(present)):
            raise Unknowable(reason)
        if isinstance(present, (Object, Function, Class, Symbol)) or constant(present):
            return False
    if isinstance(a, (Array, Table)) and isinstance(b, (Array, Table)) and type(a) is not type(b):
        return False
    if (isinstance(a, Instance) and constant(b)) or (constant(a) and isinstance(b, Instance)):
        raise Unknowable("a comparison with an object")
    raise Unknowable("a comparison of things that are not numbers or text")


def _plain(symbol: Symbol) -> str:
    return symbol.name.rpartition(".")[2]


def _contains(container: Any, item: Any) -> bool:
    if isinstance(container, str) and isinstance(item, str):
        return item in container
    if isinstance(container, Instance) and ".items" in container.slots:
        container = container.slots[".items"]
    if isinstance(container, Table) and constant(item):
        if item in container.slots:
            return True
        if not container.open:
            return False
        raise Unknowable(container.open)
    if isinstance(container, Array):
        if any(f.known and same(f.value, item) for f in container.items):
            return True
        if not container.open and all(f.known for f in container.items):
            return any(_equal(f.value, item) for f in container.items)
    raise Unknowable("membership in something that is not known")
