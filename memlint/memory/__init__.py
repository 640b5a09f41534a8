"""The estimator: a memory program of one training step, replayed through the allocator."""

from memlint.memory.estimate import estimate
from memlint.memory.result import COMPONENTS, CannotEstimate, Estimate, Instant, Interval

__all__ = ["COMPONENTS", "CannotEstimate", "Estimate", "Instant", "Interval", "estimate"]
