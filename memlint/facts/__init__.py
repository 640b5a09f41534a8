"""What memlint knows about one training job: facts with their status and origin, and the run they form."""

from memlint.facts.fact import Fact, Origin, Status, choices, default, fixed, unknown
from memlint.facts.run import Extraction, Problem, Site, TrainingRun

__all__ = [
    "Extraction",
    "Fact",
    "Origin",
    "Problem",
    "Site",
    "Status",
    "TrainingRun",
    "choices",
    "default",
    "fixed",
    "unknown",
]
