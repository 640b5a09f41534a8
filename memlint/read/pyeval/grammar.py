"""Python text to a syntax tree, with the places of its nodes.

Syntax newer than the running interpreter (PEP 695 type parameters and `type` statements, PEP 701 f-strings) is rewritten
to older syntax of the same width before a second try, so that a hook under Python 3.10 reads files written for 3.12.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from functools import lru_cache

from memlint.source import ReadError, Source, Span


class Text:
    """The text of one module, its tree, and the spans of its nodes."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        self.text = source.text
        self.lines = re.split(r"\r\n|\n|\r", source.text)
        self.ascii = source.text.isascii()
        self.tree = parse(source.text, source.path)

    def span(self, node: ast.AST) -> Span:
        """The place of a node; columns count characters."""
        line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None)
        if not self.ascii:
            column = self._characters(line, column)
            end_column = self._characters(end_line, end_column) if end_column is not None else None
        return Span(self.path, line, column + 1, end_line, (end_column or column) + 1)

    def _characters(self, line: int, column: int) -> int:
        if line > len(self.lines) or self.lines[line - 1].isascii():
            return column
        return len(self.lines[line - 1].encode("utf-8")[:column].decode("utf-8", "ignore"))


@lru_cache(maxsize=8)
def parse(text: str, path: str) -> ast.Module:
    """The syntax tree, which nobody changes. Raises `ReadError` with the place and a message when the text is not Python."""
    text = text.removeprefix("\ufeff")
    try:
        return _parse(text)
    except SyntaxError as error:
        first = error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ReadError(f"not readable as Python: {error or 'nested too deeply'}", path) from None
    older = _downgrade(text)
    if older is not None:
        try:
            return _parse(older)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    raise _refusal(first, text, path)


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _refusal(error: SyntaxError, text: str, path: str) -> ReadError:
    line, column = error.lineno or 1, max(error.offset or 1, 1)
    lines = text.splitlines()
    shown = lines[line - 1] if 0 < line <= len(lines) else ""
    if re.match(r"(<{7}|={7}|>{7}|\|{7})( |$)", shown):
        message = "unresolved merge conflict"
    elif re.match(r"\s*print +[\"'\w]", shown) or re.match(r"\s*except\s+\w+\s*,\s*\w+\s*:", shown):
        message = "Python 2 syntax"
    elif newer := newer_syntax(text, sys.version_info[:2]):
        message = f"{newer}, but memlint runs on Python {sys.version_info[0]}.{sys.version_info[1]}"
    else:
        message = error.msg if error.msg.startswith("invalid syntax") else f"invalid syntax: {error.msg}"
    return ReadError(message, path, line, column)


_NEWER = (
    ((3, 14), r"(?m)^[ \t]*except\s+\w+\s*,\s*\w+[\w\s,.]*:", "`except A, B` without parentheses needs 3.14"),
    ((3, 14), r"(?<![\w])t[\"']", "template strings need Python 3.14"),
    ((3, 13), r"(?m)^[ \t]*(def|class)\s+\w+\[[^\]\n]*=", "type parameter defaults need Python 3.13"),
    ((3, 12), r"(?m)^[ \t]*(def|class)\s+\w+\[|^[ \t]*type\s+\w+", "type parameters need Python 3.12"),
    ((3, 11), r"(?m)^[ \t]*except\s*\*", "`except*` needs Python 3.11"),
)


def newer_syntax(text: str, running: tuple[int, int]) -> str:
    """What in the text needs a Python newer than the running one; empty when nothing is recognised."""
    for version, pattern, message in _NEWER:
        if version > running and re.search(pattern, text):
            return message
    return ""


def _downgrade(text: str) -> str | None:
    """The text with 3.12 syntax written in older syntax, every token on its line; None when nothing changed."""
    older = re.sub(
        r"^([ \t]*)type([ \t]+)(\w+)([ \t]*\[[^\]\n]*\])?([ \t]*)=",
        lambda m: f"{m[1]}{m[3]}{' ' * (len(m[0]) - len(m[1]) - len(m[3]) - 1)}=",
        text,
        flags=re.M,
    )
    older = re.sub(
        r"^([ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+\w+)(\[[^\n()]*\])(?=[ \t]*[(:])",
        lambda m: m[1] + " " * len(m[2]),
        older,
        flags=re.M,
    )
    older = _requote(older)
    return older if older != text else None


def _requote(text: str) -> str:
    """F-strings whose replacement fields reuse the outer quote get the other quote inside (PEP 701 to PEP 498)."""
    pieces: list[str] = []
    position = 0
    tokens = re.compile(r"#[^\n]*|(?<!\w)(?:[rR]?[fF]|[fF][rR]|[rRbBuU]{0,2})(\"\"\"|'''|\"|')")
    while match := tokens.search(text, position):
        start = match.start()
        pieces.append(text[position:start])
        quote = match.group(1)
        if quote is None:
            pieces.append(match.group())
            position = match.end()
        elif "f" in match.group().lower() and len(quote) == 1:
            end, rewritten = _formatted(text, match.end(), quote)
            pieces.append(match.group() + rewritten)
            position = end
        else:
            end = _string_end(text, match.end(), quote)
            pieces.append(text[start:end])
            position = end
    pieces.append(text[position:])
    return "".join(pieces)


def _string_end(text: str, position: int, quote: str) -> int:
    while position < len(text):
        if text[position] == "\\":
            position += 2
        elif text.startswith(quote, position):
            return position + len(quote)
        elif text[position] == "\n" and len(quote) == 1:
            return position
        else:
            position += 1
    return position


def _formatted(text: str, position: int, quote: str) -> tuple[int, str]:
    """From after the opening quote of an f-string: where it ends, and its rest with inner quotes swapped."""
    other = "'" if quote == '"' else '"'
    depth, out = 0, []
    while position < len(text):
        char = text[position]
        if depth == 0 and char == "\\":
            out.append(text[position : position + 2])
            position += 2
            continue
        if char == "\n" and depth == 0:
            break
        if char == quote and depth == 0:
            return position + 1, "".join(out) + char
        if char in "{}" and depth == 0 and text.startswith(char * 2, position):
            out.append(char * 2)
            position += 2
            continue
        depth += (char == "{") - (char == "}" and depth > 0)
        out.append(other if char == quote else char)
        position += 1
    return position, "".join(out)
