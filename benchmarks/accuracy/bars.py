"""The reached figures by family, so that a change that makes one worse is seen."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.accuracy.score import Result, summarise
from benchmarks.accuracy.tables import CLASSES, by_group

BARS = Path(__file__).with_name("bars.json")
HELD = ("expressed", "median", "p90", "worst", "inside", "wrong_verdicts")


def reached(results: list[Result]) -> dict[str, dict[str, float]]:
    """The held figures of every family and class."""
    sets = {**by_group(results), **{name: [r for r in results if holds(r)] for name, holds in CLASSES}}
    found = {}
    for name, members in sets.items():
        summary = summarise(members)
        found[name] = {key: round(float(getattr(summary, key)), 4) for key in HELD}
    return found


def write(results: list[Result]) -> None:
    """Make the figures of these results the bars."""
    lines = (f"{json.dumps(name)}: {json.dumps(figures)}" for name, figures in reached(results).items())
    BARS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def load() -> dict[str, dict[str, float]]:
    """The bars."""
    return json.loads(BARS.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
