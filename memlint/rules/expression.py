"""The language of a rule's `when`: comparisons over facts and estimate terms in three-valued logic.

    not checkpointing.enabled and verdict in ("does_not_fit", "tight")
    estimate.share.logits >= 0.25 and loss.logits == "full" and not problem("unknown-key")

Grammar: `and`, `or`, `not`, comparisons (chains too), `in`, `a if c else b`, `+ - * / // %`, numbers, texts, `true`, `false`,
`none`, lists, dotted names, and the functions `min`, `max`, `abs`, `divisor(n, most)`, `has(list, item)`,
`known(name)`, `absent(name)` (nothing speaks of it), `explicit(name)`, `problem("name")`.

A name is a value, or `UNKNOWN`. Unknown spreads (Kleene): `false and unknown` is false, `true and unknown` unknown;
comparing or computing with it is unknown, and so is whatever makes no sense at run time (text < number, division by
zero). A name with several possible values makes the whole true or false only if it is so for each of them.

`grammar` reads a text into a tree of tuples, `(operation, *operands)`; nothing is ever evaluated as Python. Those of memlint's
own pages are read beforehand (`index`): a check parses none of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from itertools import product

from memlint.rules.index import EXPRESSIONS
from memlint.typed import Any, NamedTuple, Protocol

MAX_DIVIDEND = 2**20
MAX_CASES = 64
"""More combinations of possible values than this count as unknown."""


class Unknown(Enum):
    """The third truth value."""

    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        raise TypeError("unknown is neither true nor false")


UNKNOWN = Unknown.UNKNOWN


class Kind(str, Enum):
    """What a name or sub-expression is, checked when a page is loaded (see `kinds`)."""

    BOOL = "true or false"
    NUMBER = "a number"
    TEXT = "a text"
    LIST = "a list"
    ANY = "anything"


class ExpressionError(Exception):
    """A `when` that is not part of the language, or whose types do not fit."""


class Scope(Protocol):
    """Where an expression's names come from."""

    def values(self, name: str) -> tuple[Any, ...]:
        """Every value the name may have; empty when it is unknown."""

    def known(self, name: str) -> bool:
        """True when the name has exactly one value."""

    def absent(self, name: str) -> bool:
        """True when nothing speaks of the fact: neither the input nor a default."""

    def explicit(self, name: str) -> bool:
        """True when the input states the value, rather than a default."""

    def problem(self, name: str) -> bool:
        """True when the input has this problem."""


Environment = Mapping[str, Any]
Tree = tuple[Any, ...]


class Expression(NamedTuple):
    """An expression: `names` it reads values of, `problems` it asks for."""

    text: str
    tree: Tree
    names: tuple[str, ...]
    problems: tuple[str, ...]

    def decide(self, scope: Scope) -> bool | Unknown:
        """True or false if that holds for every possible value of every name, else unknown."""
        result = self.value(scope)
        return result if isinstance(result, bool) else UNKNOWN

    def value(self, scope: Scope) -> Any:
        """The value if it is the same for every possible value of every name, else unknown."""
        fixed: dict[str, Any] = {}
        open_names: list[str] = []
        open_values: list[tuple[Any, ...]] = []
        cases = 1
        for name in self.names:
            if name in LAZY:
                continue
            values = scope.values(name)
            if len(values) > 1:
                open_names.append(name)
                open_values.append(values)
                cases *= len(values)
            else:
                fixed[name] = values[0] if values else UNKNOWN
        if cases > MAX_CASES:
            fixed.update(dict.fromkeys(open_names, UNKNOWN))
            open_names, open_values = [], []
        outcome: Any = UNKNOWN
        for number, combination in enumerate(product(*open_values)):
            result = _evaluate(self.tree, scope, {**fixed, **dict(zip(open_names, combination, strict=True))})
            if result is UNKNOWN or (number and result != outcome):
                return UNKNOWN
            outcome = result
        return outcome


LAZY = frozenset({"largest.micro_batch", "largest.sequence_length"})
"""Names that cost a search: looked up only when evaluation reaches them."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """The expression that a text is; raises `ExpressionError` for anything outside the language."""
    known = EXPRESSIONS.get(text)
    if known is not None:
        return Expression(text, *known)
    from memlint.rules.grammar import read  # loads `ast`: only a team's own pages get here

    return Expression(text, *read(text))


# Evaluation


def _evaluate(tree: Tree, scope: Scope, env: Environment) -> Any:
    operation, *operands = tree
    if operation in _LOGIC:
        return _LOGIC[operation](operands, scope, env)
    values = [_evaluate(operand, scope, env) for operand in operands]
    if any(value is UNKNOWN for value in values):
        return UNKNOWN
    try:
        return STRICT[operation](*values)
    except (TypeError, ArithmeticError):
        return UNKNOWN


def _constant(operands: list[Any], scope: Scope, env: Environment) -> Any:
    return operands[0]


def _name(operands: list[Any], scope: Scope, env: Environment) -> Any:
    name = operands[0]
    return next(iter(scope.values(name)), UNKNOWN) if name in LAZY else env[name]


def _about(operands: list[Any], scope: Scope, env: Environment) -> Any:
    function, subject = operands
    return getattr(scope, function)(subject)


def _and(operands: list[Any], scope: Scope, env: Environment) -> Any:
    return _and_or(True, operands, scope, env)


def _or(operands: list[Any], scope: Scope, env: Environment) -> Any:
    return _and_or(False, operands, scope, env)


def _and_or(every: bool, operands: list[Any], scope: Scope, env: Environment) -> Any:
    """`and` (every) or `or`, left to right; what is neither true nor false counts as unknown."""
    result: Any = every
    for operand in operands:
        value = _evaluate(operand, scope, env)
        if value is (not every):
            return value
        if value is not every:
            result = UNKNOWN
    return result


def _not(operands: list[Any], scope: Scope, env: Environment) -> Any:
    value = _evaluate(operands[0], scope, env)
    return not value if isinstance(value, bool) else UNKNOWN


def _choice(operands: list[Any], scope: Scope, env: Environment) -> Any:
    test, then, otherwise = operands
    answer = _evaluate(test, scope, env)
    if not isinstance(answer, bool):
        return UNKNOWN
    return _evaluate(then if answer else otherwise, scope, env)


_LOGIC: Mapping[str, Callable[[list[Any], Scope, Environment], Any]] = {
    "constant": _constant,
    "name": _name,
    "about": _about,
    "and": _and,
    "or": _or,
    "not": _not,
    "if": _choice,
}
"""What looks at its operands itself; everything else takes their values, and is unknown when one is or when it makes no sense of them."""


def _numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numbers only: `text * 10 ** 9` must not be possible."""

    def apply(*values: Any) -> Any:
        return function(*values) if all(map(_is_number, values)) else UNKNOWN

    return apply


def _divisor(number: Any, most: Any) -> Any:
    """The largest divisor of `number` that is at most `most` (a batch split into equal micro-batches)."""
    if not (isinstance(number, int) and isinstance(most, int) and 0 < number <= MAX_DIVIDEND and most > 0):
        return UNKNOWN
    return next(candidate for candidate in range(min(number, most), 0, -1) if number % candidate == 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


STRICT: Mapping[str, Callable[..., Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, container: item in container,
    "not in": lambda item, container: item not in container,
    "+": _numbers(operator.add),
    "-": _numbers(operator.sub),
    "*": _numbers(operator.mul),
    "/": _numbers(operator.truediv),
    "//": _numbers(operator.floordiv),
    "%": _numbers(operator.mod),
    "negative": _numbers(operator.neg),
    "list": lambda *items: items,
    "has": lambda container, item: item in container,
    "abs": abs,
    "divisor": _divisor,
    "min": min,
    "max": max,
}
