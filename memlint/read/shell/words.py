"""Words of shell text: quotes, expansions, substitutions, here-documents. The lowest layer of the parser."""

from __future__ import annotations

import re

from memlint.read.shell.syntax import (
    Arithmetic,
    Literal,
    Parameter,
    ShellError,
    Substitution,
    Word,
)
from memlint.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.read.shell.parse import Parser

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SPECIAL = "@*#?$!-0123456789"
OPERATORS = (":-", ":=", ":?", ":+", "-", "=", "?", "+", "%%", "%", "##", "#", "//", "/", "^^", "^", ",,", ",", ":", "@")
WORD_END = frozenset(" \t\n;&|()<>")


def read_word(parser: Parser, end: frozenset[str] = WORD_END, *, pattern: bool = False) -> Word:
    """One word, up to an unquoted character of `end`. With `pattern`, parentheses belong to the word (`[[ =~ ]]`)."""
    text, start = parser.text, parser.position
    parts: list[Literal | Parameter | Arithmetic | Substitution] = []
    run = start

    def flush(upto: int) -> None:
        if upto > run:
            parts.append(Literal(run, upto, False))

    while parser.position < len(text):
        at = parser.position
        character = text[at]
        process = character in "<>" and text.startswith("(", at + 1)  # process substitution: `<(command)`
        if character in end and not process and not (pattern and character in "()|"):
            break
        if character == "\\":
            flush(at)
            if text.startswith("\\\n", at):
                parser.position += 2
            else:
                parts.append(Literal(at + 1, min(at + 2, len(text)), True))
                parser.position = min(at + 2, len(text))
        elif character == "'":
            flush(at)
            closing = text.find("'", at + 1)
            if closing < 0:
                raise ShellError("unterminated single quote", at)
            parts.append(Literal(at + 1, closing, True))
            parser.position = closing + 1
        elif character == '"':
            flush(at)
            parser.position += 1
            parts.append(Literal(at + 1, at + 1, True))
            parts.extend(_double_quoted(parser, '"', at))
            parser.position += 1
        elif character == "$" and text[at + 1 : at + 2] in ("'", '"'):
            flush(at)
            parser.position += 1
            run = parser.position
            continue
        elif character in "$`":
            expansion = read_expansion(parser, quoted=False)
            if expansion is None:
                parser.position += 1
                continue
            flush(at)
            parts.append(expansion)
        elif process:
            flush(at)
            parser.position += 2
            parts.append(Substitution(parser.block_until(")"), at, parser.position + 1, True))
            parser.expect(")")
        else:
            parser.position += 1
            continue
        run = parser.position
    flush(parser.position)
    return Word(tuple(parts), start, parser.position)


def _double_quoted(parser: Parser, closing: str, opened: int) -> list[Literal | Parameter | Arithmetic | Substitution]:
    """The parts up to the closing quote; the position is left on it. `closing` "" reads to the end of the text."""
    text = parser.text
    escapable = ("$", "`", '"', "\\", "\n") if closing else ("$", "`", "\\", "\n")
    parts: list[Literal | Parameter | Arithmetic | Substitution] = []
    run = parser.position
    while True:
        at = parser.position
        if at >= parser.limit:
            if closing:
                raise ShellError("unterminated double quote", opened)
            break
        character = text[at]
        if closing and character == closing:
            break
        if character == "\\" and text[at + 1 : at + 2] in escapable:
            if at > run:
                parts.append(Literal(run, at, True))
            if text[at + 1] != "\n":
                parts.append(Literal(at + 1, at + 2, True))
            parser.position = run = at + 2
        elif character in "$`":
            expansion = read_expansion(parser, quoted=True)
            if expansion is None:
                parser.position += 1
                continue
            if at > run:
                parts.append(Literal(run, at, True))
            parts.append(expansion)
            run = parser.position
        else:
            parser.position += 1
    if parser.position > run:
        parts.append(Literal(run, parser.position, True))
    return parts


def read_expansion(parser: Parser, *, quoted: bool) -> Parameter | Arithmetic | Substitution | None:
    """What starts with `$` or a backquote, or None when the `$` is a plain character. Moves past it."""
    text, at = parser.text, parser.position
    if text[at] == "`":
        return _backquoted(parser, quoted)
    following = text[at + 1 : at + 2]
    if text.startswith("$((", at):
        closing = arithmetic_end(text, at + 3)
        if closing is not None:
            parser.position = closing + 2
            return Arithmetic(read_heredoc(parser, at + 3, closing, literal=False), at, closing + 2, quoted)
    if following == "(":
        parser.position += 2
        body = parser.block_until(")")
        parser.expect(")")
        return Substitution(body, at, parser.position, quoted)
    if following == "[":
        closing = text.find("]", at)
        if closing > 0:
            parser.position = closing + 1
            return Arithmetic(read_heredoc(parser, at + 2, closing, literal=False), at, closing + 1, quoted)
    if following == "{":
        return _braced(parser, quoted)
    match = NAME.match(text, at + 1)
    if match:
        parser.position = match.end()
        return Parameter(match.group(), at, match.end(), quoted)
    if following and following in SPECIAL:
        parser.position = at + 2
        return Parameter(following, at, at + 2, quoted, index=following if following in "@*" else "")
    return None


def arithmetic_end(text: str, start: int) -> int | None:
    """The offset of the `))` that closes an arithmetic expansion; None when it is a subshell in a substitution."""
    depth = 0
    for at in range(start, min(len(text), start + 4096)):
        if text[at] == "(":
            depth += 1
        elif text[at] == ")":
            if depth == 0:
                return at if text.startswith("))", at) else None
            depth -= 1
    return None


def _backquoted(parser: Parser, quoted: bool) -> Substitution:
    start = parser.position
    closing = start + 1
    while closing < len(parser.text) and parser.text[closing] != "`":
        closing += 2 if parser.text[closing] == "\\" else 1
    if closing >= len(parser.text):
        raise ShellError("unterminated backquote", start)
    body = parser.sub(start + 1, closing)
    parser.position = closing + 1
    return Substitution(body, start, closing + 1, quoted)


def _braced(parser: Parser, quoted: bool) -> Parameter:
    text, start = parser.text, parser.position
    parser.position += 2
    length = indirect = False
    if text.startswith("#", parser.position) and text[parser.position + 1 : parser.position + 2] not in ("}", ""):
        length = True
        parser.position += 1
    elif text.startswith("!", parser.position):
        indirect = True
        parser.position += 1
    match = NAME.match(text, parser.position) or re.compile(r"\d+|[@*#?$!-]").match(text, parser.position)
    if match is None:
        raise ShellError("bad substitution", start)
    name = match.group()
    parser.position = match.end()
    index = name if name in ("@", "*") else ""
    if text.startswith("[", parser.position):
        closing = text.find("]", parser.position)
        if closing < 0:
            raise ShellError("bad substitution", start)
        index = text[parser.position + 1 : closing].strip("\"'")
        parser.position = closing + 1
    operator, operand = "", None
    if length:
        operator = "length"
    else:
        operator = next((o for o in OPERATORS if text.startswith(o, parser.position)), "")
        parser.position += len(operator)
        if operator:
            inner = parser.position
            operand = _operand(parser, inner, start)
    if not text.startswith("}", parser.position):
        raise ShellError("unterminated ${", start)
    parser.position += 1
    return Parameter(name, start, parser.position, quoted, operator, operand, index, indirect)


def _operand(parser: Parser, inner: int, start: int) -> Word:
    """The word after an operator, up to the closing brace; quotes inside it are removed."""
    word = read_word(parser, frozenset("}"))
    if parser.position >= len(parser.text):
        raise ShellError("unterminated ${", start)
    return Word(word.parts, inner, word.end)


def read_heredoc(parser: Parser, start: int, end: int, *, literal: bool) -> Word:
    """The body `start:end` of a here-document."""
    if literal:
        return Word((Literal(start, end, True),), start, end)
    saved, limit = parser.position, parser.limit
    parser.position, parser.limit = start, end
    try:
        parts = _double_quoted(parser, "", start)
    finally:
        parser.position, parser.limit = saved, limit
    return Word(tuple(parts), start, end)
