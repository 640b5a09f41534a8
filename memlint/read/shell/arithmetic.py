"""Integer expressions of `$((...))`, `((...))`, `let` and `expr`, bounded, never by evaluating code."""

from __future__ import annotations

import re
from collections.abc import Callable

TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)|(\$?\{?[A-Za-z_]\w*\}?|\$\{?\d+\}?|\$\{?#\}?)"
    r"|(\*\*|<<|>>|[<>=!]=|&&|\|\||[-+*/%()<>?:!]))"
)
LIMIT = 2**63
BINARY: tuple[tuple[str, ...], ...] = (
    ("||",), ("&&",), ("==", "!="), ("<=", ">=", "<", ">"), ("<<", ">>"), ("+", "-"), ("*", "/", "%"), ("**",)
)  # fmt: skip
"""Operators from the loosest to the tightest."""


class NotArithmetic(Exception):
    """The expression is not one that can be computed here."""


def evaluate(expression: str, lookup: Callable[[str], int]) -> int:
    """The value of an expression; `lookup` gives a variable's value and may raise `NotArithmetic`."""
    tokens: list[str] = []
    at = 0
    expression = expression.strip().strip('"')
    while at < len(expression):
        match = TOKEN.match(expression, at)
        if match is None or len(tokens) > 200:
            raise NotArithmetic(expression)
        tokens.append(match.group().strip())
        at = match.end()
    parser = _Parser(tokens, lookup)
    value = parser.ternary()
    if parser.at != len(tokens):
        raise NotArithmetic(expression)
    return value


class _Parser:
    def __init__(self, tokens: list[str], lookup: Callable[[str], int]) -> None:
        self.tokens, self.lookup, self.at = tokens, lookup, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        token = self.peek()
        if token and token in wanted:
            self.at += 1
            return token
        return ""

    def ternary(self) -> int:
        condition = self.binary(0)
        if not self.take("?"):
            return condition
        yes = self.ternary()
        if not self.take(":"):
            raise NotArithmetic("? without :")
        no = self.ternary()
        return yes if condition else no

    def binary(self, level: int) -> int:
        if level == len(BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while operator := self.take(*BINARY[level]):
            left = _apply(operator, left, self.binary(level + 1))
        return left

    def unary(self) -> int:
        if operator := self.take("-", "+", "!"):
            value = self.unary()
            return {"-": -value, "+": value, "!": int(not value)}[operator]
        if self.take("("):
            value = self.ternary()
            if not self.take(")"):
                raise NotArithmetic("( without )")
            return value
        token = self.peek()
        self.at += 1
        if token[:1].isdigit():
            return int(token, 16) if token[:2] in ("0x", "0X") else int(token)
        name = token.strip("${}")
        if not name or not (name[0].isalnum() or name[0] in "_#"):
            raise NotArithmetic(token)
        return self.lookup(name)


def _apply(operator: str, a: int, b: int) -> int:
    if operator in ("/", "%"):
        if b == 0:
            raise NotArithmetic("division by zero")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if operator == "/" else a - b * quotient
    if operator in ("<<", ">>", "**") and not 0 <= b <= 64:
        raise NotArithmetic("exponent")
    if operator == "**":
        value: int = a**b
    else:
        value = {
            "||": lambda: int(bool(a) or bool(b)),
            "&&": lambda: int(bool(a) and bool(b)),
            "==": lambda: int(a == b),
            "!=": lambda: int(a != b),
            "<=": lambda: int(a <= b),
            ">=": lambda: int(a >= b),
            "<": lambda: int(a < b),
            ">": lambda: int(a > b),
            "<<": lambda: a << b,
            ">>": lambda: a >> b,
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
        }[operator]()
    if abs(value) >= LIMIT:
        raise NotArithmetic("overflow")
    return value
