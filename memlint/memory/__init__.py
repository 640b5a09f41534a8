"""The estimator: a memory program of one training step, replayed through the allocator.

The door is `memlint.memory.estimate.estimate`; it is not imported here, because what it needs takes a while to load.
"""

from memlint.memory.result import COMPONENTS, CannotEstimate, Estimate, Instant, Interval, NoPage

__all__ = ["COMPONENTS", "CannotEstimate", "Estimate", "Instant", "Interval", "NoPage"]
