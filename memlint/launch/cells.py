"""What the Python cells of a notebook say to its shell lines: constants, loops around a line, and blocks that never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from memlint.facts import Origin
from memlint.read.notebook import Notebook, ShellText
from memlint.read.shell import Piece, Value
from memlint.source import Span

MAX_ROUNDS = 12
"""Values of a loop variable that are followed."""


class Cells:
    """The names and blocks of a notebook's Python cells."""

    def __init__(self, notebook: Notebook) -> None:
        self.variables: dict[str, Value | None] = {}
        """Python variables of the top level: their text, or None when they are not one constant."""
        self.environment: dict[str, Value] = {}
        """What `os.environ["NAME"] = constant` sets."""
        self._loops: list[tuple[int, int, int, str, list[Value]]] = []
        self._dead: set[tuple[int, int]] = set()
        self._notebook = notebook
        for first, text in notebook.python_cells():
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            self._read(tree, first)

    def is_dead(self, shell: ShellText) -> bool:
        """Whether a line stands in a block that never runs (`if False:`)."""
        return (shell.cell, shell.line) in self._dead

    def rounds(self, shell: ShellText) -> list[Mapping[str, Value | None]]:
        """The variables that a line sees: once for each value of a loop around it."""
        for cell, first, last, name, values in self._loops:
            if cell == shell.cell and first <= shell.line <= last:
                return [{**self.variables, name: value} for value in values]
        return [self.variables]

    def _read(self, tree: ast.Module, first: int) -> None:
        for node in tree.body:
            if isinstance(node, ast.If) and isinstance(node.test, ast.Constant) and not node.test.value:
                self._dead.update(self._rows(node.body, first))
            elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                values = [value for item in _items(node.iter) if (value := self._value(item, first, node.target.id)) is not None]
                if values and len(values) == len(_items(node.iter)):
                    rows = sorted(self._rows(node.body, first))
                    self._loops.append((rows[0][0], rows[0][1], rows[-1][1], node.target.id, values))
        for name, node_ in _assigned(tree):
            environ = name.startswith("environ ")
            value = self._value(node_, first, name)
            if environ:
                if value is not None:
                    self.environment[name.removeprefix("environ ")] = value
                continue
            before = self.variables.get(name)
            known = before is not None and value is not None and _text(before) == _text(value)
            self.variables[name] = value if name not in self.variables or known else None

    def _rows(self, body: list[ast.stmt], first: int) -> Iterator[tuple[int, int]]:
        """The cell and line of every row of a block."""
        for row in range(body[0].lineno, (body[-1].end_lineno or body[-1].lineno) + 1):
            place = self._notebook.place(Span(self._notebook.path, first + row - 1))
            yield place.cell, place.line

    def _value(self, node: ast.expr, first: int, name: str) -> Value | None:
        """A constant, or text put together from constants, as text with its places."""
        if isinstance(node, ast.Constant):
            if not isinstance(node.value, (str, int, float)):
                return None
            row, end = first + node.lineno - 1, (node.end_col_offset or 0) + 1
            span = self._notebook.place(Span(self._notebook.path, row, node.col_offset + 1, row, end))
            return (Piece(str(node.value), chain=(Origin(span, name),)),)
        if isinstance(node, ast.Name):
            return self.variables.get(node.id)
        parts: list[ast.expr] = []
        if isinstance(node, ast.JoinedStr):
            parts = node.values
        elif isinstance(node, ast.FormattedValue) and node.format_spec is None:
            parts = [node.value]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and not _is_number(node):
            parts = [node.left, node.right]
        found = [self._value(part, first, name) for part in parts]
        if not found or any(value is None for value in found):
            return None
        return tuple(piece for value in found if value is not None for piece in value)


def _is_number(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(side, ast.Constant) and not isinstance(side.value, str) for side in sides)


def _text(value: Value) -> str:
    return "".join(piece.text for piece in value)


def _items(node: ast.expr) -> list[ast.expr]:
    """The members of a list or tuple that is written out and short."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return node.elts[:MAX_ROUNDS] if len(node.elts) <= MAX_ROUNDS else []
    return []


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Subscript) and ast.unparse(target.value) in ("os.environ", "environ"):
                name = target.slice.value if isinstance(target.slice, ast.Constant) else None
                if isinstance(name, str):
                    yield f"environ {name}", node.value
