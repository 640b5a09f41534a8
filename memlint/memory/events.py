"""What a run does to memory at full depth: the events that the allocator sees, and the peaks of its phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memlint.typed import NamedTuple

SMALL = 1 << 20
"""Requests up to this size come from the allocator's small pool: together they are below 0.1 % of a step, and counted, not placed."""


class Peak(NamedTuple):
    """The most that is allocated during one phase, and what it consists of."""

    phase: str
    total: int
    components: Mapping[str, int]


class Events(NamedTuple):
    """A run at full depth. What the allocator places are events, +ident (allocate) or -ident (free), of blocks with `sizes` by ident."""

    loading: list[int]
    buffers: list[int]
    """What is there from before the first step on."""
    first: list[int]
    """A step, or the first micro-batch of several, where one was recorded before the steady one."""
    states: list[int]
    """Optimizer states that are made in the first step."""
    step: list[int]
    updates: int
    """So many events of the step come before its optimizer step,"""
    first_updates: int | None
    """and so many of the first one's before its own; None where it has none."""
    top: int
    """So many events of the step lead to its highest total,"""
    requested: int
    """for which so many bytes of placed blocks are requested."""
    sizes: list[int]
    small: int
    """The most that blocks which are not placed hold together."""
    peaks: Sequence[Peak]
    """In the order in which the phases first occur."""
    streams: Mapping[int, int] = {}  # a default that nothing changes
    """The stream of each block that is not the computation's."""
    lag: int = 0
    """Freed all-gathers that cannot be used yet."""
    empties: bool = False
    """The cache is emptied after loading,"""
    empties_steps: bool = False
    """and by the loop now and then between steps."""
    restarts: bool = False
    """What loading reserved is not counted with what steps do."""
