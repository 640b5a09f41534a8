"""What an estimate says. Bytes are ints; every quantity is an interval."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.typed import NamedTuple

COMPONENTS = (
    "weights",
    "adapters",
    "gradients",
    "optimizer_states",
    "activations",
    "logits",
    "communication",
    "workspace",
)
"""The kinds of allocation, in the order reports show them; `context` (CUDA context and libraries) is not an allocation."""


class CannotEstimate(Exception):
    """A fact without which no estimate is possible is missing; the message says which and how to supply it."""


class NoPage(CannotEstimate):
    """No page describes the layers of this model type."""


class Interval(NamedTuple):
    """Bytes: the least, the expected and the most."""

    low: int
    expected: int
    high: int


class Instant(NamedTuple):
    """One phase of a training step: the most that is allocated during it, and what that consists of."""

    phase: str
    """load, forward, loss, backward, optimizer_step, evaluation."""
    peak_bytes: int
    components: Mapping[str, int]


class Estimate(NamedTuple):
    """Peak memory of one rank's GPU, per process.

    `allocated` is what live blocks hold at the peak, `required` the smallest allocator capacity with which a step still
    completes (the line that decides a verdict), `reserved` what the caching allocator holds (on the card, where it suffices), `device`
    the reserved bytes plus the CUDA context (what nvidia-smi shows).
    """

    allocated: Interval
    required: Interval
    reserved: Interval
    device: Interval
    peak_phase: str
    components: Mapping[str, int]
    """Allocated bytes at the peak by component (sums to `allocated.expected`), plus `context`."""
    timeline: tuple[Instant, ...]
    """One entry per phase, in the order of a step."""
    parameters: int
    trainable_parameters: int
    assumptions: tuple[str, ...] = ()
    """What was assumed, or is not modelled and therefore widens the interval; one sentence each."""
    beside: Interval = Interval(0, 0, 0)
    """What is on the card beside torch's allocator and its CUDA context: communicators' buffers, and what an old CUDA loads at once."""
    host_bytes: Interval | None = None
    """Host memory of one node, over all its ranks; the data loader is not included."""
