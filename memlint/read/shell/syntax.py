"""The syntax tree of a shell script (the part of bash that launch scripts use). Offsets count characters of the text parsed."""

from __future__ import annotations

from dataclasses import dataclass


class ShellError(Exception):
    """Text that bash would reject, at a character offset."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message, self.offset = message, offset


@dataclass(frozen=True, slots=True)
class Literal:
    """The characters `start:end` of the text, as they are (an escaped character is a literal of its own)."""

    start: int
    end: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$NAME`, `${NAME}`, `${NAME:-word}`, `${NAME[@]}`, `${#NAME}`; `operator` is "" for a plain expansion."""

    name: str
    start: int
    end: int
    quoted: bool
    operator: str = ""
    operand: Word | None = None
    index: str = ""
    """`@`, `*`, or the text of a subscript."""
    indirect: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`$((...))`; the expression is expanded like text in double quotes before it is computed."""

    expression: Word
    start: int
    end: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Substitution:
    """`$(...)` or backquotes."""

    body: Block
    start: int
    end: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Word:
    """One word before expansion. `start:end` covers it with its quotes."""

    parts: tuple[Literal | Parameter | Arithmetic | Substitution, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """`NAME=word`, `NAME+=word`, `NAME=(word ...)`."""

    name: str
    value: Word | tuple[Word, ...]
    append: bool
    start: int
    end: int
    index: str | None = None


@dataclass(frozen=True, slots=True)
class Heredoc:
    """The body of `<<EOF`: one word, appended when the parser reaches it; a single literal when the delimiter was quoted."""

    body: list[Word]


@dataclass(frozen=True, slots=True)
class Redirect:
    """`> file`, `2>&1`, `<<< word`, `<<EOF`."""

    operator: str
    target: Word | None
    heredoc: Heredoc | None = None


@dataclass(frozen=True, slots=True)
class Simple:
    """A simple command: assignments, words and redirections."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word | Assignment, ...]
    redirects: tuple[Redirect, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Test:
    """`[[ ... ]]`."""

    words: tuple[Word, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ArithmeticCommand:
    """`(( ... ))`."""

    expression: Word
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`a | b`, possibly negated with `!`."""

    commands: tuple[Node, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AndOr:
    """`left && right` or `left || right`."""

    left: Node
    operator: str
    right: Node


@dataclass(frozen=True, slots=True)
class Block:
    """Commands in sequence."""

    commands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`{ ...; }` or `( ... )` with redirections."""

    body: Block
    redirects: tuple[Redirect, ...]
    subshell: bool


@dataclass(frozen=True, slots=True)
class If:
    """`if`/`elif` branches in order; `otherwise` is the `else` block."""

    branches: tuple[tuple[Block, Block], ...]
    otherwise: Block | None


@dataclass(frozen=True, slots=True)
class For:
    """`for NAME in words`; words None is `"$@"`; `expression` is the head of a C-style loop, then `name` is empty."""

    name: str
    words: tuple[Word, ...] | None
    body: Block
    expression: Word | None = None


@dataclass(frozen=True, slots=True)
class While:
    """`while` or `until`."""

    condition: Block
    body: Block
    until: bool


@dataclass(frozen=True, slots=True)
class Case:
    """`case word in pattern) ... ;; esac`."""

    word: Word
    arms: tuple[tuple[tuple[Word, ...], Block], ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A function definition."""

    name: str
    body: Node


Node = Simple | Test | ArithmeticCommand | Pipeline | AndOr | Block | Group | If | For | While | Case | Function
