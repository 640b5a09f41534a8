"""A run replayed through PyTorch's CUDA caching allocator: what is reserved, and whether a capacity suffices."""

from __future__ import annotations

from memlint.memory.events import Events
from memlint.memory.heap import DoesNotComplete, Heap
from memlint.memory.order import Part, order_of
from memlint.typed import NamedTuple

SMALL_SEGMENT = 2 << 20
"""Small blocks have segments of their own."""


class Replay(NamedTuple):
    """What a replay reached. `slack` are the unsplit tails of the large blocks at the peak, which `torch.cuda.max_memory_allocated`
    counts as allocated; `left` is still reserved when the last step is over."""

    slack: int
    reserved: int
    loading: int
    """What loading reserved, where that is not counted with the steps."""
    left: int


class Replays:
    """A run on cards of several sizes: with at least `low` bytes all do the same up to the first event that such a one has no room for."""

    def __init__(self, events: Events, expandable: bool = False, low: int = 0) -> None:
        self.events = events
        self.small = -(-events.small // SMALL_SEGMENT) * SMALL_SEGMENT
        *before, last = order_of(events)
        top = len(last.events) - len(events.step) + events.top
        self.left = [*before, last.between(0, top), last.between(top)]
        self.heap = Heap(events, expandable)
        self.copies: list[Heap] = []
        self.done: dict[int, Replay] = {}
        """Replays that were completed, by capacity: the smallest that suffices is asked for again."""
        self.left = self._run(self.heap, low - self.small, stops=True)

    def unlimited(self) -> Replay:
        """On a card that never runs out."""
        return self._replay(None)

    def on_card(self, capacity: int) -> Replay:
        """On one of that many bytes. Raises `DoesNotComplete` when they do not suffice."""
        if capacity not in self.done:
            self.done[capacity] = self._replay(capacity - self.small)
        return self.done[capacity]

    def _replay(self, limit: int | None) -> Replay:
        heap = self._copy()
        self._run(heap, limit)
        return Replay(heap.slack, heap.peak + self.small, heap.loading, heap.reserved + self.small)

    def smallest_capacity(self, low: int, high: int, room: int, tolerance: float = 0.005) -> int:
        """The smallest capacity that suffices, to within `tolerance` of the answer.

        `low` is known not to be more than needed (the allocated peak), `high` to suffice (the unconstrained reserve). `room`, what the
        card has, is tried first: what it shows is asked for when it suffices.
        """
        middle = room
        while high - low > tolerance * high:
            middle = middle if low < middle < high else (low + high) // 2
            try:
                self.on_card(middle)
            except DoesNotComplete:
                low = middle
            else:
                high = middle
        return high

    def forget(self) -> None:
        """Let go of all blocks: they refer to one another, and would wait for the collector."""
        for heap in (self.heap, *self.copies):
            heap.clear()

    def _copy(self) -> Heap:
        self.copies.append(self.heap.copy())
        return self.copies[-1]

    def _run(self, heap: Heap, limit: int | None, stops: bool = False) -> list[Part]:
        """Go through what is left; the rest of it where it stops."""
        for number, part in enumerate(self.left, 1):
            rest = self.left[number:]
            place = heap.run(part, limit, stops)
            if place is not None:
                return [part.between(place), *rest]
            if part.empties:
                heap.empty()
            if part.restarts:
                heap.loading, heap.peak = heap.peak, heap.reserved
            if len(rest) == 1:  # at the top
                heap.slack = heap.allocated - self.events.requested
        return []
