"""The language of a rule's `when`: comparisons over facts and estimate terms in three-valued logic.

    not checkpointing.enabled and verdict in ("does_not_fit", "tight")
    estimate.share.logits >= 0.25 and loss.logits == "full" and not problem("unknown-key")

It is read with `ast` through a whitelist and turned into closures; nothing is ever evaluated as Python. Grammar:
`and`, `or`, `not`, comparisons (chains too), `in`, `a if c else b`, `+ - * / // %`, numbers, texts, `true`, `false`,
`none`, lists, dotted names, and the functions `min`, `max`, `abs`, `divisor(n, most)`, `has(list, item)`,
`known(name)`, `absent(name)` (nothing speaks of it), `explicit(name)`, `problem("name")`.

A name is a value, or `UNKNOWN`. Unknown spreads (Kleene): `false and unknown` is false, `true and unknown` unknown;
comparing or computing with it is unknown, and so is whatever makes no sense at run time (text < number, division by
zero). A name with several possible values makes the whole true or false only if it is so for each of them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from itertools import product

from memlint.typed import Any, NamedTuple, Protocol

MAX_LENGTH = 2000
MAX_DEPTH = 40
MAX_DIVIDEND = 2**20
MAX_CASES = 64
"""More combinations of possible values than this count as unknown."""


class Unknown(Enum):
    """The third truth value."""

    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        raise TypeError("unknown is neither true nor false")


UNKNOWN = Unknown.UNKNOWN


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
Evaluate = Callable[[Scope, Environment], Any]


class Expression(NamedTuple):
    """A compiled expression: `names` it reads values of, `problems` it asks for."""

    text: str
    names: tuple[str, ...]
    problems: tuple[str, ...]
    tree: ast.expr
    evaluate: Evaluate

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
            result = self.evaluate(scope, {**fixed, **dict(zip(open_names, combination, strict=True))})
            if result is UNKNOWN or (number and result != outcome):
                return UNKNOWN
            outcome = result
        return outcome


LAZY = frozenset({"largest.micro_batch", "largest.sequence_length"})
"""Names that cost a search: looked up only when evaluation reaches them."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Compile an expression; raises `ExpressionError` for anything outside the language."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        compiler = _Compiler()
        evaluate = compiler.compile(tree, MAX_DEPTH)
    except (SyntaxError, ValueError, MemoryError):
        raise ExpressionError(f"not an expression: {text.strip()!r}") from None
    except RecursionError:
        raise ExpressionError("nested too deeply") from None
    return Expression(text, tuple(compiler.names), tuple(compiler.problems), tree, evaluate)


# Compilation

_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "none": None}
_ABOUT_NAMES = ("known", "absent", "explicit", "problem")


class _Compiler:
    """Turns a tree into closures and notes, in order, the names and problems it asks for."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.problems: dict[str, None] = {}

    def compile(self, node: ast.expr, depth: int) -> Evaluate:
        """One node; raises RecursionError below `depth` levels, because evaluation nests as deeply as the tree."""
        if not depth:
            raise RecursionError
        name = dotted(node)
        if name is not None:
            return self._name(name)
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, bool, type(None))):
            constant = node.value
            return lambda _scope, _env: constant
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, node.args, depth)
        parts = [self.compile(part, depth - 1) for part in _operands(node)]
        if isinstance(node, ast.BoolOp):
            return _and_or(isinstance(node.op, ast.And), parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            return _unary(isinstance(node.op, ast.Not), parts[0])
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return _strict(_arithmetic(_ARITHMETIC[type(node.op)]), parts)
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            pairs = zip(node.ops, parts, parts[1:], strict=False)
            links = [_strict(_COMPARE[type(op)], [left, right]) for op, left, right in pairs]
            return links[0] if len(links) == 1 else _and_or(True, links)
        if isinstance(node, ast.IfExp):
            return _choice(*parts)
        if isinstance(node, (ast.List, ast.Tuple)):
            return _strict(lambda *items: items, parts)
        raise ExpressionError(f"not allowed here: {ast.unparse(node)!r}")

    def _name(self, name: str) -> Evaluate:
        if name in CONSTANTS:
            constant = CONSTANTS[name]
            return lambda _scope, _env: constant
        self.names[name] = None
        if name in LAZY:
            return lambda scope, _env: next(iter(scope.values(name)), UNKNOWN)
        return lambda _scope, env: env[name]

    def _call(self, function: str, arguments: list[ast.expr], depth: int) -> Evaluate:
        if function in _ABOUT_NAMES and len(arguments) == 1:
            subject = subject_of(arguments[0])
            if subject is None:
                raise ExpressionError(f"{function}() takes the name of a fact or problem")
            if function == "problem":
                self.problems[subject] = None
            return lambda scope, _env: getattr(scope, function)(subject)
        if (function, len(arguments)) not in _FUNCTIONS and (function not in ("min", "max") or len(arguments) < 2):
            raise ExpressionError(f"no function {function}() with {len(arguments)} arguments")
        parts = [self.compile(argument, depth - 1) for argument in arguments]
        return _strict(_FUNCTIONS[function, min(len(arguments), 2)], parts)


def _operands(node: ast.expr) -> list[ast.expr]:
    """The sub-expressions of the nodes that have any."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.IfExp):
        return [node.test, node.body, node.orelse]
    if isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.List, ast.Tuple)):
        return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    raise ExpressionError(f"not allowed here: {ast.unparse(node)!r}")


def _and_or(every: bool, parts: list[Evaluate]) -> Evaluate:
    """`and` (every) or `or`, left to right; what is neither true nor false counts as unknown."""

    def evaluate(scope: Scope, env: Environment) -> Any:
        result: Any = every
        for part in parts:
            value = part(scope, env)
            if value is (not every):
                return value
            if value is not every:
                result = UNKNOWN
        return result

    return evaluate


def _unary(negation: bool, operand: Evaluate) -> Evaluate:
    def evaluate(scope: Scope, env: Environment) -> Any:
        value = operand(scope, env)
        if negation:
            return not value if isinstance(value, bool) else UNKNOWN
        return -value if _is_number(value) else UNKNOWN

    return evaluate


def _choice(test: Evaluate, then: Evaluate, otherwise: Evaluate) -> Evaluate:
    def evaluate(scope: Scope, env: Environment) -> Any:
        answer = test(scope, env)
        if not isinstance(answer, bool):
            return UNKNOWN
        return (then if answer else otherwise)(scope, env)

    return evaluate


def _strict(function: Callable[..., Any], operands: list[Evaluate]) -> Evaluate:
    """Apply a function to values; unknown when one is unknown or when it makes no sense of them."""

    def evaluate(scope: Scope, env: Environment) -> Any:
        values = [operand(scope, env) for operand in operands]
        if any(value is UNKNOWN for value in values):
            return UNKNOWN
        try:
            return function(*values)
        except (TypeError, ArithmeticError):
            return UNKNOWN

    return evaluate


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Numbers only: `text * 10 ** 9` must not be possible."""

    def apply(left: Any, right: Any) -> Any:
        return function(left, right) if _is_number(left) and _is_number(right) else UNKNOWN

    return apply


def _divisor(number: Any, most: Any) -> Any:
    """The largest divisor of `number` that is at most `most` (a batch split into equal micro-batches)."""
    if not (isinstance(number, int) and isinstance(most, int) and 0 < number <= MAX_DIVIDEND and most > 0):
        return UNKNOWN
    return next(candidate for candidate in range(min(number, most), 0, -1) if number % candidate == 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` of a chain of attributes; None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else None


def subject_of(node: ast.expr) -> str | None:
    """The name that a function of facts is asked about: a string or a dotted name; None for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else dotted(node)


_FUNCTIONS: Mapping[tuple[str, int], Callable[..., Any]] = {
    ("has", 2): lambda container, item: item in container,
    ("abs", 1): abs,
    ("divisor", 2): _divisor,
    ("min", 2): min,
    ("max", 2): max,
}
"""Functions of values by name and number of arguments; `min` and `max` take more."""
