"""The lines of source that a finding points at, with carets under the places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from memlint.report.style import Style
from memlint.report.text import plain, source_line
from memlint.source import ReadError, Span

Mark = tuple[Span, str, str]
"""A place, what to say about it, and its colour."""

LABEL_COLOUR = "1;36"


def place(span: Span) -> str:
    """`path:line:column`; a notebook place names its cell as `path:cell N:line:column`."""
    cell = f"cell {span.cell}:" if span.cell else ""
    return f"{plain(span.path)}:{cell}{span.line}:{span.column}"


def error_line(error: ReadError, style: Style) -> str:
    """An input that could not be read, as every command for people says it."""
    where = place(Span(error.path, error.line, error.column))
    return f"{style.paint('error', '1;31')}: {where}: {plain(error.message)}"


def excerpts(
    primary: Span,
    labels: Sequence[tuple[Span, str]],
    lines_of: Callable[[Span], Sequence[str]],
    style: Style,
    colour: str = "1;31",
) -> list[str]:
    """The primary place and its labels: one excerpt per file, the primary's first, all with one gutter.

    Only the place is named when its line does not exist (an empty file, a text that is not at hand).
    """
    marks: list[Mark] = [(primary, "", colour), *((span, text, LABEL_COLOUR) for span, text in labels)]
    gutter = max(len(str(span.line)) for span, _, _ in marks)
    files: dict[tuple[str, int], list[Mark]] = {}
    for mark in marks:
        files.setdefault((mark[0].path, mark[0].cell), []).append(mark)
    rows: list[str] = []
    for number, group in enumerate(files.values()):
        arrow = style.link(":::" if number else "-->")
        rows.append(f"{' ' * gutter}{arrow} {place(group[0][0])}")
        rows += _lines(group, lines_of(group[0][0]), gutter, style)
    return rows


def _lines(group: Sequence[Mark], lines: Sequence[str], gutter: int, style: Style) -> Iterator[str]:
    """The marked lines in order, `...` where lines are left out, carets and words under each mark."""
    by_line: dict[int, list[Mark]] = {}
    for mark in sorted(group, key=lambda mark: (mark[0].line, mark[0].column)):
        by_line.setdefault(mark[0].line, []).append(mark)
    bar, before = style.link("|"), 0
    for line, marks in by_line.items():
        if not 1 <= line <= len(lines):
            yield from (f"{' ' * gutter}  {text}" for _, text, _ in marks if text)
            continue
        if not before:
            yield f"{' ' * gutter} {bar}"
        elif line > before + 1:
            yield style.link("...")
        before = line
        for number, (span, text, colour) in enumerate(marks):
            shown, offset, length = _shown(span, lines[line - 1], max(style.width - gutter - 4, 40), style)
            if not number:
                yield f"{style.link(str(line).rjust(gutter))} {bar} {shown}"
            carets = f"{' ' * offset}{style.paint('^' * length, colour)}"
            yield f"{' ' * gutter} {bar} {carets}{' ' + style.paint(text, colour) if text else ''}"


def _shown(span: Span, line: str, room: int, style: Style) -> tuple[str, int, int]:
    """The line as it is shown, and the column and length of its carets; a very long line is cut around the place."""
    start = min(span.column - 1, len(line))
    same_line = span.end_line in (0, span.line)
    end = span.end_column - 1 if same_line and span.end_column else (start + 1 if same_line else len(line.rstrip()))
    before, marked, after = line[:start], line[start : max(end, start + 1)] or " ", line[max(end, start + 1) :]
    if _columns(before) + _columns(marked) > room:
        before = ("..." + before[-20:]) if len(before) > 23 else before
        marked = marked[: room - len(before)]
    shown = source_line(before + marked + after).rstrip()
    if _columns(shown) > room:
        shown = shown[: room - 1] + ("…" if style.blocks else "~")
    return shown, _columns(source_line(before)), max(_columns(source_line(marked)), 1)


def _columns(text: str) -> int:
    """Terminal columns: wide East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
