"""Comments that speak to memlint: `# memlint: ignore[MEM010] reason`, `# memlint: gpu=t4`, `# memlint: set key=value`.

Only real comments count, not text that looks like one inside a string. Files that do not contain `memlint:` cost one
search.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import lru_cache

from memlint.source import Kind, Source
from memlint.typed import NamedTuple

MARKER = "memlint:"
ORIGIN = "memlint comment"
"""The origin of a fact that a comment states."""


class Comment(NamedTuple):
    """One comment: `text` is what follows `memlint:`; `line` counts inside the cell for a notebook (`cell` > 0).

    `column` and `end_column` cover the comment from its `#` (or `//`) on; `alone` is true when nothing else is on its
    line.
    """

    line: int
    column: int
    end_column: int
    text: str
    alone: bool
    cell: int = 0


def comments_of(source: Source) -> list[Comment]:
    """Every comment addressed to memlint, in order."""
    return list(_comments(source)) if MARKER in source.text else []


@lru_cache(maxsize=64)
def _comments(source: Source) -> tuple[Comment, ...]:
    """Asked for several times per file (settings, facts, suppressions), found once."""
    if source.kind is Kind.NOTEBOOK:
        return tuple(found for cell, text in code_cells(source.text) for found in _find(text, Kind.PYTHON, cell))
    return tuple(_find(source.text, source.kind, 0))


def code_cells(text: str) -> Iterator[tuple[int, str]]:
    """The code cells of a notebook as (1-based position among all cells, text); nothing for a broken notebook."""
    import json

    try:
        cells = json.loads(text).get("cells", [])
        for number, cell in enumerate(cells, 1):
            if cell.get("cell_type") == "code":
                lines = cell.get("source", "")
                yield number, lines if isinstance(lines, str) else "".join(map(str, lines))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return


def _find(text: str, kind: Kind, cell: int) -> Iterator[Comment]:
    sign = r"(?:#|//)" if kind is Kind.JSON else "#"
    pattern = re.compile(rf"{sign}[ \t]*memlint:[ \t]*(.*?)[ \t]*$")
    real = _real_comments(text, kind)
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        if MARKER not in line:
            continue
        match = pattern.search(line)
        if match and (real is None or (number, match.start()) in real):
            before = line[: match.start()]
            yield Comment(number, match.start() + 1, len(line) + 1, match.group(1), not before.strip(), cell)


def _real_comments(text: str, kind: Kind) -> set[tuple[int, int]] | None:
    """The (line, 0-based column) at which comments start; None when that cannot be said: then any match counts."""
    if kind is Kind.PYTHON:
        return _python_comments(text)
    if kind is Kind.YAML:
        return _yaml_comments(text)
    return None


def _python_comments(text: str) -> set[tuple[int, int]] | None:
    before = text[: text.rfind(MARKER)]
    if '"' not in before and "'" not in before:
        return None  # No string has begun: whatever starts with # is a comment.
    import tokenize

    starts: set[tuple[int, int]] = set()
    last = before.count("\n") + 1
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.start[0] > last:
                break  # Most such comments are at the top, and tokenising a script costs more than reading it.
            if token.type == tokenize.COMMENT:
                # A comment may hold another one ("# memlint: ...").
                for match in re.finditer("#", token.string):
                    starts.add((token.start[0], token.start[1] + match.start()))
    except (tokenize.TokenError, SyntaxError):
        return None
    return starts


def _yaml_comments(text: str) -> set[tuple[int, int]] | None:
    """Every `#` that lies outside the scalars of the document."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    inside: list[tuple[tuple[int, int], tuple[int, int]]] = []
    try:
        for token in yaml.scan(text, Loader=loader):
            if isinstance(token, yaml.ScalarToken):
                start, end = token.start_mark, token.end_mark
                inside.append(((start.line + 1, start.column), (end.line + 1, end.column)))
    except yaml.YAMLError:
        return None
    starts: set[tuple[int, int]] = set()
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        for match in re.finditer("#", line):
            place = (number, match.start())
            if MARKER in line and not any(start <= place < end for start, end in inside):
                starts.add(place)
    return starts
