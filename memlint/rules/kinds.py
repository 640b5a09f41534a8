"""The check of an expression's kinds when a page is loaded: names exist, operands fit, texts can occur."""

from __future__ import annotations

import ast

from memlint.rules.expression import Expression, ExpressionError, Kind
from memlint.rules.grammar import CONSTANTS, dotted, subject_of, syntax
from memlint.typed import Any, Protocol


class Schema(Protocol):
    """What a name may be; for the check at load time."""

    def kind(self, name: str) -> Kind | None:
        """The kind of a name, or None when there is no such name."""

    def allowed(self, name: str) -> tuple[str, ...]:
        """The texts a name may be, empty when any."""


def check(expression: Expression, schema: Schema, wanted: Kind = Kind.BOOL) -> None:
    """Raise `ExpressionError` when a name does not exist, kinds do not fit, or a text can never occur."""
    _require(syntax(expression.text), wanted, schema)


def _require(node: ast.expr, wanted: Kind, schema: Schema) -> None:
    kind = _kind(node, schema)
    if Kind.ANY not in (kind, wanted) and kind is not wanted:
        raise ExpressionError(f"{ast.unparse(node)} is {kind.value}, expected {wanted.value}")


def _kind(node: ast.expr, schema: Schema) -> Kind:
    name = dotted(node)
    if name is not None:
        return _kind_of_name(name, schema)
    if isinstance(node, ast.Constant):
        return _kind_of_value(node.value)
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _require(part, Kind.BOOL, schema)
        return Kind.BOOL
    if isinstance(node, ast.UnaryOp):
        kind = Kind.BOOL if isinstance(node.op, ast.Not) else Kind.NUMBER
        _require(node.operand, kind, schema)
        return kind
    if isinstance(node, ast.BinOp):
        for part in (node.left, node.right):
            _require(part, Kind.NUMBER, schema)
        return Kind.NUMBER
    if isinstance(node, ast.Compare):
        for op, left, right in zip(node.ops, (node.left, *node.comparators), node.comparators, strict=False):
            _check_comparison(op, left, right, schema)
        return Kind.BOOL
    if isinstance(node, ast.IfExp):
        _require(node.test, Kind.BOOL, schema)
        kind = _kind(node.body, schema)
        _require(node.orelse, kind, schema)
        return kind
    if isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            _kind(item, schema)
        return Kind.LIST
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)  # `grammar` let nothing else through
    return _kind_of_call(node.func.id, node.args, schema)


def _kind_of_name(name: str, schema: Schema) -> Kind:
    if name in CONSTANTS:
        return _kind_of_value(CONSTANTS[name])
    kind = schema.kind(name)
    if kind is None:
        raise ExpressionError(f"there is no fact or term {name!r}")
    return kind


def _kind_of_value(value: Any) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOL
    if value is None:
        return Kind.ANY
    return Kind.TEXT if isinstance(value, str) else Kind.NUMBER


def _kind_of_call(function: str, arguments: list[ast.expr], schema: Schema) -> Kind:
    if function in ("known", "absent", "explicit"):
        _kind_of_name(subject_of(arguments[0]) or "", schema)
        return Kind.BOOL
    if function == "problem":
        return Kind.BOOL
    if function == "has":
        _check_texts(arguments[0], [arguments[1]], schema)
        _kind(arguments[1], schema)
        return Kind.BOOL
    for argument in arguments:
        _require(argument, Kind.NUMBER, schema)
    return Kind.NUMBER


def _check_comparison(op: ast.cmpop, left: ast.expr, right: ast.expr, schema: Schema) -> None:
    if isinstance(op, (ast.In, ast.NotIn)):
        kind, container = _kind(left, schema), _kind(right, schema)
        if container not in (Kind.LIST, Kind.TEXT, Kind.ANY):
            raise ExpressionError(f"{ast.unparse(right)} is {container.value}, expected a list")
        items = right.elts if isinstance(right, (ast.List, ast.Tuple)) else []
        for item in items:
            _require(item, kind, schema)
        _check_texts(left, items, schema)
    elif isinstance(op, (ast.Eq, ast.NotEq)):
        _require(right, _kind(left, schema), schema)
        _check_texts(left, [right], schema)
        _check_texts(right, [left], schema)
    else:
        _require(left, Kind.NUMBER, schema)
        _require(right, Kind.NUMBER, schema)


def _check_texts(subject: ast.expr, items: list[ast.expr], schema: Schema) -> None:
    """A text that the subject can never be is a misspelling."""
    name = dotted(subject)
    allowed = schema.allowed(name) if name else ()
    for item in items:
        if allowed and isinstance(item, ast.Constant) and isinstance(item.value, str) and item.value not in allowed:
            raise ExpressionError(f"{name} is never {item.value!r}; it is one of {', '.join(allowed)}")
