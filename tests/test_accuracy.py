"""The accuracy benchmark holds the figures it has reached (`python -m benchmarks.accuracy --bars` writes them)."""

from __future__ import annotations

import pytest

from benchmarks.accuracy import bars, figure
from benchmarks.accuracy.cases import SEED_CASES, load
from benchmarks.accuracy.score import Result, evaluate_all

SLACK = 0.002
"""Relative error that a change may cost a family, e.g. by another split of a large block."""


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """memlint's answer to every published measurement."""
    return evaluate_all(load())


@pytest.fixture(scope="module")
def reached(results: list[Result]) -> dict[str, dict[str, float]]:
    """The figures of this working tree."""
    return bars.reached(results)


@pytest.mark.parametrize("name", sorted(bars.load()))
def test_no_family_gets_worse(name: str, reached: dict[str, dict[str, float]]) -> None:
    """Median, p90 and worst error, measurements inside the interval, wrong verdicts, cases that can be expressed."""
    bar, now = bars.load()[name], reached[name]
    assert now["expressed"] >= bar["expressed"]
    for key in ("median", "p90", "worst"):
        assert abs(now[key]) <= abs(bar[key]) + SLACK, key
    assert now["inside"] >= bar["inside"] - SLACK
    assert now["wrong_verdicts"] <= bar["wrong_verdicts"]


def test_every_case_is_there() -> None:
    """The copy of the collection is whole: 335 measurements in bytes and 105 verdicts, and the seed cases."""
    cases = load()
    assert len(cases) == 440
    assert sum(case.kind == "bytes" for case in cases) == 335
    assert len(load(SEED_CASES)) == 18


def test_the_figure_shows_every_compared_case(results: list[Result]) -> None:
    """One dot per case with an error; nothing but plain SVG."""
    drawn = figure.scatter(results)
    assert drawn.count('r="3"') == sum(result.error is not None for result in results)
    assert "<script" not in drawn and "href" not in drawn
