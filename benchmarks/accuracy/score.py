"""Run the estimator over cases and say how far off it is. Errors are predicted / measured - 1."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.accuracy.cases import Case
from memlint.assess import DOES_NOT_FIT, FITS, UNKNOWN, assess
from memlint.memory import Interval


@dataclass(frozen=True, slots=True)
class Result:
    """What memlint says about one case; `predicted` is of the kind that was measured, None where there is no estimate."""

    case: Case
    predicted: Interval | None
    verdict: str
    phase: str = ""
    why_not: str = ""

    @property
    def error(self) -> float | None:
        """Signed relative error of the expected value; None for verdict cases and where there is no estimate."""
        if self.predicted is None or not self.case.bytes:
            return None
        return self.predicted.expected / self.case.bytes - 1

    @property
    def inside(self) -> bool | None:
        """Whether the measurement lies in the predicted interval."""
        if self.predicted is None or not self.case.bytes:
            return None
        return self.predicted.low <= self.case.bytes <= self.predicted.high

    @property
    def half_width(self) -> float | None:
        """Half the interval, relative to the expected value."""
        if self.predicted is None or not self.case.bytes:
            return None
        return (self.predicted.high - self.predicted.low) / 2 / self.predicted.expected

    @property
    def wrong_verdict(self) -> bool:
        """`fits` for a run that died, or `does_not_fit` for one that ran (a measured run ran, too)."""
        if self.case.kind == "oom":
            return self.verdict == FITS
        return self.verdict == DOES_NOT_FIT


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a set of results. Shares are between 0 and 1."""

    cases: int
    expressed: int
    """Cases with an estimate."""
    compared: int
    """Cases with an estimate and measured bytes."""
    median: float
    p90: float
    worst: float
    """The signed error that is farthest off."""
    bias: float
    """Median signed error."""
    inside: float
    half_width: float
    wrong_verdicts: int
    judged: int


def evaluate(case: Case) -> Result:
    """memlint's answer to one case."""
    try:
        assessed = assess(case.run, case.gpu)
    except Exception as error:  # one broken case must not hide the others; it counts as not expressed
        return Result(case, None, UNKNOWN, why_not=f"crash: {type(error).__name__}: {error}")
    estimate = assessed.estimate
    if estimate is None:
        return Result(case, None, assessed.verdict, why_not=assessed.why_not)
    kinds = {"allocated": estimate.allocated, "reserved": estimate.reserved, "device": estimate.device}
    return Result(case, kinds.get(case.metric, estimate.required), assessed.verdict, estimate.peak_phase)


def evaluate_all(cases: Iterable[Case]) -> list[Result]:
    """memlint's answer to every case, in their order; groups with an unstated common length at the length that fits them best."""
    cases = list(cases)
    groups: dict[str, list[Case]] = {}
    for case in cases:
        if case.shares_length:
            groups.setdefault(case.shares_length, []).append(case)
    lengths = {name: common_length(members) for name, members in groups.items()}
    return [evaluate(case.at_length(lengths[case.shares_length]) if case.shares_length else case) for case in cases]


def common_length(cases: list[Case]) -> int:
    """The one length, between half the cap and the cap, at which a group's median signed error is nearest to zero.

    The only number that is fitted here; a dozen cases spread over the group decide.
    """
    sample = cases[:: max(1, len(cases) // 12)]
    cap = max(int(case.run.value("batch.sequence_length_max") or 8192) for case in cases)

    def bias(tokens: int) -> float:
        return abs(summarise(evaluate(case.at_length(tokens)) for case in sample).bias)

    return min(range(cap // 2, cap + 1, max(1, cap // 32)), key=bias)


def summarise(results: Iterable[Result]) -> Summary:
    """The figures of some results; errors are 0 where nothing can be compared."""
    results = list(results)
    compared = [r for r in results if r.error is not None]
    errors = [r.error for r in compared if r.error is not None]
    sizes = sorted(abs(e) for e in errors)
    judged = [r for r in results if r.verdict in (FITS, DOES_NOT_FIT)]
    return Summary(
        cases=len(results),
        expressed=sum(r.predicted is not None for r in results),
        compared=len(errors),
        median=statistics.median(sizes) if sizes else 0.0,
        p90=sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))] if sizes else 0.0,
        worst=max(errors, key=abs) if errors else 0.0,
        bias=statistics.median(errors) if errors else 0.0,
        inside=sum(bool(r.inside) for r in compared) / len(compared) if compared else 0.0,
        half_width=statistics.median(r.half_width or 0.0 for r in compared) if compared else 0.0,
        wrong_verdicts=sum(r.wrong_verdict for r in judged),
        judged=len(judged),
    )
