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
    states: list[int]
    """What is allocated for good before a step (optimizer states), and a first step where one was recorded."""
    step: list[int]
    top: int
    """So many events of the step lead to its highest total,"""
    requested: int
    """for which, and for what a first step has left, so many bytes of placed blocks are requested."""
    sizes: list[int]
    small: int
    """The most that blocks which are not placed hold together."""
    peaks: Sequence[Peak]
    """In the order in which the phases first occur."""
    has_first: bool
    """A first step was recorded before the optimizer states."""
    streams: Mapping[int, int] = {}  # a default that nothing changes
    """The stream of each block that is not the computation's."""
    lag: int = 0
    """Freed all-gathers that cannot be used yet."""
    empties: bool = False
    """The cache is emptied after loading."""
