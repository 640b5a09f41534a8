"""PyTorch's CUDA caching allocator, replayed over an event stream: what is reserved, and whether a capacity suffices.

Rules of torch 2.13 `c10/cuda/CUDACachingAllocator.cpp` and `c10/core/AllocatorConfig.h`: sizes rounded to 512 bytes; requests up to
1 MiB live in 2 MiB segments; up to 10 MiB in 20 MiB segments; larger ones in segments rounded to 2 MiB; the smallest free block that
fits is taken (ties: lowest address), and split when more than 1 MiB would remain; freed neighbours coalesce; before running out
of memory, every segment that is wholly free is returned to the driver and the request is tried again.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from memlint.memory.timeline import Events

MIB = 1 << 20
SMALL = MIB
"""Requests up to this size come from the small pool."""
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
LARGE_REQUEST = 10 * MIB
ROUND = 2 * MIB


class DoesNotComplete(Exception):
    """The capacity is too small for the events even after returning every free segment."""


class _Block:
    __slots__ = ("address", "free", "next", "previous", "size")

    def __init__(self, address: int, size: int, previous: _Block | None = None, following: _Block | None = None) -> None:
        self.address = address
        self.size = size
        self.free = False
        self.previous = previous
        self.next = following


class Allocator:
    """The large pool of one device. Small requests are counted, not placed: together they are below 0.1 % of a step."""

    def __init__(self, capacity: int | None = None, expandable: bool = False) -> None:
        self.capacity = capacity
        self.expandable = expandable
        self.reserved = 0
        self.allocated = 0
        self.peak_reserved = 0
        self.peak_allocated = 0
        self._cached: list[tuple[int, int, _Block]] = []
        self._next_address = 0
        self._small = 0
        self._small_peak = 0

    def allocate(self, size: int) -> _Block | None:
        """A block of at least `size` bytes; None for a small one. Raises `DoesNotComplete` beyond the capacity."""
        if size <= SMALL:
            self._small += size
            self._small_peak = max(self._small_peak, self._small)
            return None
        cached = self._cached
        position = bisect_left(cached, (size,))
        if position < len(cached):
            block = cached.pop(position)[2]
        else:
            block = self._grow(size)
        rest = block.size - size
        if rest > SMALL:
            tail = _Block(block.address + size, rest, block, block.next)
            if block.next is not None:
                block.next.previous = tail
            block.next = tail
            block.size = size
            tail.free = True
            insort(cached, (rest, tail.address, tail))
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def _grow(self, size: int) -> _Block:
        """A new segment from the driver."""
        if self.expandable:
            segment = -(-size // ROUND) * ROUND
        else:
            segment = LARGE_SEGMENT if size < LARGE_REQUEST else -(-size // ROUND) * ROUND
        small = -(-self._small_peak // SMALL_SEGMENT) * SMALL_SEGMENT
        if self.capacity is not None and self.reserved + segment + small > self.capacity:
            self._release()
            if self.reserved + segment + small > self.capacity:
                raise DoesNotComplete
        self.reserved += segment
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        address = self._next_address
        self._next_address += segment + 1  # a gap: segments never coalesce
        return _Block(address, segment)

    def _release(self) -> None:
        """Return every wholly free segment to the driver."""
        kept = []
        for entry in self._cached:
            block = entry[2]
            if block.previous is None and block.next is None:
                self.reserved -= block.size
            else:
                kept.append(entry)
        self._cached = kept

    def free(self, block: _Block) -> None:
        """Give a block back and merge it with free neighbours of its segment."""
        self.allocated -= block.size
        cached = self._cached
        before, after = block.previous, block.next
        if before is not None and before.free:
            del cached[bisect_left(cached, (before.size, before.address))]
            before.size += block.size
            before.next = after
            if after is not None:
                after.previous = before
            block = before
        if after is not None and after.free:
            del cached[bisect_left(cached, (after.size, after.address))]
            block.size += after.size
            block.next = after.next
            if after.next is not None:
                after.next.previous = block
        block.free = True
        insort(cached, (block.size, block.address, block))

    def free_small(self, size: int) -> None:
        """Give a small request back."""
        self._small -= size

    @property
    def total_reserved(self) -> int:
        """Peak of what is reserved, the small pool included."""
        return self.peak_reserved + -(-self._small_peak // SMALL_SEGMENT) * SMALL_SEGMENT

    @property
    def total_allocated(self) -> int:
        """Peak of what is allocated, unsplit tails included (`torch.cuda.max_memory_allocated` counts whole blocks)."""
        return self.peak_allocated + self._small_peak


def replay(events: Events, capacity: int | None = None, expandable: bool = False) -> Allocator:
    """Run loading, a first step (optimizer states appear at its end) and a second, steady step."""
    allocator = Allocator(capacity, expandable)
    sizes, stream = events.sizes, events.stream
    live: dict[int, _Block] = {}
    loading = stream[: events.states_begin]
    states = stream[events.states_begin : events.step_begins]
    steady = stream[events.step_begins :]
    allocate, free = allocator.allocate, allocator.free
    for part in (loading, steady, states, steady):
        for event in part:
            if event > 0:
                block = allocate(sizes[event])
                if block is not None:
                    live[event] = block
            else:
                owned = live.pop(-event, None)
                if owned is not None:
                    free(owned)
                else:
                    allocator.free_small(sizes[-event])
    return allocator


def smallest_capacity(events: Events, low: int, high: int, tolerance: float = 0.005) -> int:
    """The smallest capacity (bytes) with which the replay completes, to within `tolerance` of the answer.

    `low` is known not to be more than needed (the allocated peak), `high` to suffice (the unconstrained reserve).
    """
    while high - low > tolerance * high:
        middle = (low + high) // 2
        try:
            replay(events, middle)
        except DoesNotComplete:
            low = middle
        else:
            high = middle
    return high
