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


FEW = 8
"""Blocks for which it is no use to ask whether they need a place."""


class Closed(NamedTuple):
    """Consecutive events that free every block they make: where there is room for these, only the `releases` change anything."""

    events: int
    """How many they are."""
    releases: Sequence[int]
    """The places among them of those that free a block which was there before."""
    room: int
    """With so many bytes in one free block, and as many more as the `largest` request in each further one, all requests find a place
    there, wherever the others lie: n blocks in k free ones leave at most n + k holes, and some hole has more than their mean."""
    largest: int


def closed_end(events: Sequence[int], sizes: Sequence[int]) -> Closed:
    """What comes after the last block that stays; nothing where that makes a few only."""
    gone = {-event for event in events if event < 0}
    begin = max((place for place, event in enumerate(events, 1) if event > 0 and event not in gone), default=0)
    end = events[begin:]
    made = {event for event in end if event > 0}
    if len(made) < FEW:
        return Closed(0, (), 0, 0)
    releases = []
    room = total = blocks = 0
    for place, event in enumerate(end):
        if event > 0:
            room = max(room, total + blocks * (sizes[event] + SMALL))  # SMALL: what is not split off
            total, blocks = total + sizes[event], blocks + 1
        elif -event in made:
            total, blocks = total - sizes[-event], blocks - 1
        else:
            releases.append(place)
    return Closed(len(end), releases, room, max(sizes[event] for event in made))


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
    closed: Sequence[tuple[int, Closed]] = ()
    """Where in the step events begin that are closed."""
    restarts: bool = False
    """What loading reserved is not counted with what steps do."""
