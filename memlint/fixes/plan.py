"""The smallest change that makes a run fit: a search over a handful of known steps and their combinations.

A step is a set of changes to canonical facts with a safety and a cost (how much it intrudes on what the author chose).
Every step is estimated alone. What a combination would save is foreseen from that, phase by phase (a peak is a maximum,
so two steps may help only together), and only combinations that are foreseen to fit are estimated, cheapest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from memlint.assess import DOES_NOT_FIT, FITS, TIGHT, Assessment, estimate_with, judge
from memlint.fixes.steps import Step, steps_for
from memlint.memory.result import Estimate
from memlint.rules.finding import Safety
from memlint.typed import Any

MAX_STEPS = 3
MAX_ESTIMATES = 100
MAX_PROPOSALS = 5

FORESIGHT = 1.08
"""A combination is estimated when it is foreseen to need at most this many times the room: effects overlap a little."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that makes a run fit, or may. `device_bytes_after` is what nvidia-smi is then expected to show."""

    title: str
    safety: Safety
    changes: Mapping[str, Any]
    device_bytes_after: int
    verdict_after: str


def plan(assessment: Assessment, *, most: int = MAX_PROPOSALS, budget: int = MAX_ESTIMATES) -> tuple[Proposal, ...]:
    """The least intrusive changes after which a run fits its card, best first; at most `budget` estimates are made.

    Empty when the run fits, when it has no target or no estimate, and when nothing helps. Where nothing makes it fit
    for sure, those after which it may (`tight`).
    """
    if assessment.estimate is None or assessment.gpu is None or assessment.verdict == FITS:
        return ()
    search = _Search(assessment, assessment.estimate, budget)
    fitting: list[_Tried] = []
    tight: list[_Tried] = []
    for tried in search.cheapest_first():
        if any(_is_more_than(tried, other) for other in fitting):
            continue
        if tried.verdict == FITS:
            fitting.append(tried)
        elif tried.verdict == TIGHT and assessment.verdict == DOES_NOT_FIT:
            tight.append(tried)
        if len(fitting) >= most:
            break
    minimal = [t for t in tight if not any(other is not t and _is_more_than(t, other) for other in tight)]
    return tuple(tried.proposal() for tried in (fitting or minimal)[:most])


@dataclass(frozen=True, slots=True)
class _Tried:
    """Steps that were estimated together."""

    steps: tuple[Step, ...]
    estimate: Estimate
    verdict: str

    def proposal(self) -> Proposal:
        """The steps as one change; as safe as its least safe step."""
        changes = merged(self.steps)
        safety = max((step.safety for step in self.steps), key=list(Safety).index)
        title = ", ".join(step.title for step in self.steps)
        return Proposal(title, safety, changes, self.estimate.device.expected, self.verdict)


def _is_more_than(tried: _Tried, other: _Tried) -> bool:
    """Whether `tried` does all that `other` does, or goes further in the same direction: it is then no alternative."""
    costs = {step.group: step.cost for step in tried.steps}
    return all(costs.get(step.group, -1) >= step.cost for step in other.steps)


class _Search:
    """Estimates of combinations of steps, as many as the budget allows."""

    def __init__(self, assessment: Assessment, base: Estimate, budget: int) -> None:
        self.assessment, self.base, self.left = assessment, base, budget
        self.phases = {instant.phase: instant.peak_bytes for instant in base.timeline}
        self.saved: dict[Step, dict[str, int]] = {}

    def cheapest_first(self) -> Iterator[_Tried]:
        """Every estimated combination, ordered by cost as far as that can be known before estimating."""
        alone = [tried for step in steps_for(self.assessment) if (tried := self._try((step,))) is not None]
        for tried in alone:
            after = {instant.phase: instant.peak_bytes for instant in tried.estimate.timeline}
            self.saved[tried.steps[0]] = {phase: peak - after.get(phase, 0) for phase, peak in self.phases.items()}
        useful = [tried.steps[0] for tried in alone if self._is_useful(tried.steps[0])]
        singles = {tried.steps: tried for tried in alone}
        groups = [
            steps
            for size in range(1, MAX_STEPS + 1)
            for steps in combinations(useful, size)
            if len({step.group for step in steps}) == size and sum(len(step.changes) for step in steps) == len(merged(steps))
        ]
        for steps in sorted(groups, key=lambda steps: (sum(step.cost for step in steps), len(steps))):
            if steps in singles:
                yield singles[steps]
            elif self._may_fit(steps):
                tried_together = self._try(steps)
                if tried_together is not None:
                    yield tried_together

    def _try(self, steps: tuple[Step, ...]) -> _Tried | None:
        if self.left <= 0:
            return None
        self.left -= 1
        estimate = estimate_with(self.assessment, merged(steps))
        return None if estimate is None else _Tried(steps, estimate, judge(estimate, self.assessment.gpu))

    def _is_useful(self, step: Step) -> bool:
        """Whether a step lowers the peak of any phase noticeably."""
        return max(self.saved[step].values(), default=0) * 200 > max(self.phases.values(), default=0)

    def _may_fit(self, steps: Sequence[Step]) -> bool:
        """Whether the steps together are foreseen to leave enough room."""
        gpu = self.assessment.gpu
        peak = max((p - sum(self.saved[s][phase] for s in steps) for phase, p in self.phases.items()), default=0)
        saved = max(self.phases.values(), default=0) - peak
        if gpu is None:
            return False
        return self.base.required.high - saved + gpu.context_high + self.base.beside.high <= gpu.capacity_bytes * FORESIGHT


def merged(steps: Sequence[Step]) -> dict[str, Any]:
    """The changes of several steps."""
    return {key: value for step in steps for key, value in step.changes.items()}
