"""The lines of source that a finding points at, with carets under the place."""

from __future__ import annotations

from collections.abc import Sequence

from memlint.report.style import Style
from memlint.report.text import plain, source_line
from memlint.source import Span


def place(span: Span) -> str:
    """`path:line:column`; a notebook place names its cell as `path:cell N:line:column`."""
    cell = f"cell {span.cell}:" if span.cell else ""
    return f"{plain(span.path)}:{cell}{span.line}:{span.column}"


def excerpt(span: Span, lines: Sequence[str], label: str, style: Style, *, arrow: str = "-->", colour: str = "1;31") -> str:
    """The place, the line and the carets. Only the place when the line does not exist (an empty file)."""
    gutter = len(str(span.line))
    head = f"{' ' * gutter}{style.link(arrow)} {place(span)}"
    if not 1 <= span.line <= len(lines):
        return f"{head}: {label}" if label else head
    line = lines[span.line - 1]
    start = min(span.column - 1, len(line))
    same_line = span.end_line in (0, span.line)
    end = span.end_column - 1 if same_line and span.end_column else (start + 1 if same_line else len(line.rstrip()))
    before, marked = line[:start], line[start : max(end, start + 1)] or " "
    room = max(style.width - gutter - 4, 40)
    if _columns(before) + _columns(marked) > room:
        before, marked, after = _squeeze(before, marked, line[start + len(marked) :], room)
    else:
        after = line[start + len(marked) :]
    shown = source_line(before + marked + after).rstrip()
    shown = shown if _columns(shown) <= room else shown[: room - 1] + ("…" if style.blocks else "~")
    carets = " " * _columns(source_line(before)) + style.paint("^" * max(_columns(source_line(marked)), 1), colour)
    bar = style.link("|")
    empty = f"{' ' * gutter} {bar}"
    number = style.link(str(span.line).rjust(gutter))
    return "\n".join(
        [head, empty, f"{number} {bar} {shown}", f"{empty} {carets}{' ' + style.paint(label, colour) if label else ''}"]
    )


def _squeeze(before: str, marked: str, after: str, room: int) -> tuple[str, str, str]:
    """A very long line: a few characters of what stands before, as much of the marked text as there is room for."""
    before = ("..." + before[-20:]) if len(before) > 23 else before
    return before, marked[: room - len(before)], "" if len(marked) > room - len(before) else after


def _columns(text: str) -> int:
    """Terminal columns: wide East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
