"""Places in a text that stands inside another file (a here-document, notebook cells) moved to where the text is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.facts import Fact, Origin, TrainingRun
from memlint.source import Span
from memlint.typed import Protocol


class Origins(Protocol):
    """A text that knows where its characters are written."""

    text: str

    def span(self, start: int, end: int) -> Span | None:
        """The place of the characters `start:end`."""


Move = Callable[[Span], Span]


def relocated(run: TrainingRun, origins: Mapping[str, Origins]) -> TrainingRun:
    """The run with every place in one of the texts (by path) moved to its origin."""
    if not origins:
        return run
    starts = {path: _line_starts(text.text) for path, text in origins.items()}

    def move(span: Span) -> Span:
        origin = origins.get(span.path)
        if origin is None:
            return span
        lines = starts[span.path]
        start = _offset(lines, span.line, span.column)
        end = _offset(lines, span.end_line or span.line, span.end_column or span.column)
        found = origin.span(start, max(start + 1, end)) if start < len(origin.text) else None
        return found or span

    return moved(run, move)


def moved(run: TrainingRun, move: Move) -> TrainingRun:
    """The run with `move` applied to every place."""
    return run._replace(
        span=move(run.span),
        facts={key: _fact(fact, move) for key, fact in run.facts.items()},
        sites=tuple(site._replace(span=move(site.span)) for site in run.sites),
        problems=tuple(p._replace(span=move(p.span), related=tuple(move(span) for span in p.related)) for p in run.problems),
    )


def _fact(fact: Fact, move: Move) -> Fact:
    return fact._replace(origin=tuple(Origin(o.span and move(o.span), o.note) for o in fact.origin))


def _line_starts(text: str) -> list[int]:
    starts = [0]
    at = text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def _offset(starts: list[int], line: int, column: int) -> int:
    return starts[min(max(line, 1), len(starts)) - 1] + max(column, 1) - 1
