"""How a terminal is drawn on: colours when wanted, block characters when the encoding has them, the width."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from memlint.typed import NamedTuple, TextIO

SEVERITY_COLOURS = {"error": "1;31", "warning": "1;33", "info": "1;36"}
VERDICT_COLOURS = {"fits": "32", "tight": "33", "does_not_fit": "31", "unknown": "2"}


class Style(NamedTuple):
    """The looks of text output. Plain by default: what a pipe and a test see."""

    colour: bool = False
    blocks: bool = True
    """False when the encoding cannot show block and arrow characters."""
    width: int = 100

    def paint(self, text: str, code: str) -> str:
        """The text in an ANSI colour, where colour is on."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def bold(self, text: str) -> str:
        """Bold text."""
        return self.paint(text, "1")

    def dim(self, text: str) -> str:
        """Less important text."""
        return self.paint(text, "2")

    def link(self, text: str) -> str:
        """A path or a line number."""
        return self.paint(text, "1;34")

    def stack(self, parts: Sequence[int], scale: int, columns: int) -> str:
        """A stacked bar: each part as long as its share of `scale`, in `columns` columns. Rounding never adds up."""
        shades = "█▓▒░" if self.blocks else "#=-."
        drawn, total = "", 0
        for shade, part in zip(shades, parts, strict=False):
            total += part
            end = round(total * columns / scale) if scale else 0
            drawn += shade * (end - len(drawn))
        return drawn

    @property
    def mark(self) -> str:
        """The mark of a limit inside a bar."""
        return "│" if self.blocks else "|"

    @property
    def arrow(self) -> str:
        """From one value to another."""
        return "→" if self.blocks else "->"

    @property
    def dash(self) -> str:
        """Between the ends of an interval."""
        return "–" if self.blocks else "-"


def for_stream(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Style:
    """The style for a stream: colour on a terminal only; `NO_COLOR` turns it off, `FORCE_COLOR` on (no-color.org)."""
    terminal = stream.isatty()
    if environ.get("NO_COLOR"):
        colour = False
    elif environ.get("FORCE_COLOR", "0") not in ("", "0"):
        colour = True
    else:
        colour = terminal and environ.get("TERM") != "dumb"
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    width = 100
    if terminal:
        from shutil import get_terminal_size

        width = min(get_terminal_size((100, 24)).columns, 120)
    return Style(colour, encoding.startswith("utf"), width)
