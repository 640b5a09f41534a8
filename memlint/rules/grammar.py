"""The text of an expression -> its tree: read with `ast` through a whitelist (see `expression` for the language)."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from memlint.rules.expression import ExpressionError, Tree
from memlint.typed import Any

MAX_LENGTH = 2000
MAX_DEPTH = 40

_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.USub: "negative",
}
_ARGUMENTS = {"has": (2, 2), "abs": (1, 1), "divisor": (2, 2), "min": (2, 99), "max": (2, 99)}
"""Functions of values, with the fewest and the most arguments they take."""
_ABOUT_NAMES = ("known", "absent", "explicit", "problem")
CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "none": None}


def read(text: str) -> tuple[Tree, tuple[str, ...], tuple[str, ...]]:
    """The tree of an expression, the names it reads and the problems it asks for, in order. Raises `ExpressionError`."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters")
    reader = _Reader()
    try:
        tree = reader.tree(syntax(text), MAX_DEPTH)
    except RecursionError:
        raise ExpressionError("nested too deeply") from None
    return tree, tuple(reader.names), tuple(reader.problems)


def syntax(text: str) -> ast.expr:
    """The syntax tree of an expression, whatever is in it. Raises `ExpressionError`."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError):
        raise ExpressionError(f"not an expression: {text.strip()!r}") from None


class _Reader:
    """Notes, in order, the names and problems that a tree asks for."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.problems: dict[str, None] = {}

    def tree(self, node: ast.expr, depth: int) -> Tree:
        """One node; raises RecursionError below `depth` levels, because evaluation nests as deeply as the tree."""
        if not depth:
            raise RecursionError
        name = dotted(node)
        if name is not None:
            return self._name(name)
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, bool, type(None))):
            return "constant", node.value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, node.args, depth)
        parts = [self.tree(part, depth - 1) for part in _operands(node)]
        if isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.BinOp)) and type(node.op) in _OPERATORS:
            return (_OPERATORS[type(node.op)], *parts)
        if isinstance(node, ast.Compare) and all(type(op) in _OPERATORS for op in node.ops):
            links = [(_OPERATORS[type(op)], *pair) for op, *pair in zip(node.ops, parts, parts[1:], strict=False)]
            return links[0] if len(links) == 1 else ("and", *links)
        if isinstance(node, ast.IfExp):
            return ("if", *parts)
        if isinstance(node, (ast.List, ast.Tuple)):
            return ("list", *parts)
        raise ExpressionError(f"not allowed here: {ast.unparse(node)!r}")

    def _name(self, name: str) -> Tree:
        if name in CONSTANTS:
            return "constant", CONSTANTS[name]
        self.names[name] = None
        return "name", name

    def _call(self, function: str, arguments: list[ast.expr], depth: int) -> Tree:
        if function in _ABOUT_NAMES and len(arguments) == 1:
            subject = subject_of(arguments[0])
            if subject is None:
                raise ExpressionError(f"{function}() takes the name of a fact or problem")
            if function == "problem":
                self.problems[subject] = None
            return "about", function, subject
        fewest, most = _ARGUMENTS.get(function, (1, 0))
        if not fewest <= len(arguments) <= most:
            raise ExpressionError(f"no function {function}() with {len(arguments)} arguments")
        return (function, *(self.tree(argument, depth - 1) for argument in arguments))


def _operands(node: ast.expr) -> list[ast.expr]:
    """The sub-expressions of the nodes that have any."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.IfExp):
        return [node.test, node.body, node.orelse]
    if isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.List, ast.Tuple)):
        return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    raise ExpressionError(f"not allowed here: {ast.unparse(node)!r}")


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
