"""The caching allocator with `expandable_segments:True`: each stream has one segment that grows at its end.

torch 2.13 `c10/cuda/CUDACachingAllocator.cpp` (`ExpandableSegment`, `try_allocate_expandable_block`): best fit among free blocks, else
the segment's free end grows by pages of 20 MiB; free neighbours coalesce. Under pressure the pages of any free block are unmapped
and mapped again elsewhere (`release_cached_blocks`, `unmap_block`), so a step completes as soon as what is allocated fits.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from memlint.memory.allocator import LARGE_SEGMENT, SMALL, Replay, cut, small_bytes
from memlint.memory.timeline import Events


class _Block:
    __slots__ = ("address", "free", "next", "previous", "size")

    def __init__(self, address: int, size: int, previous: _Block | None) -> None:
        self.address = address
        self.size = size
        self.free = True
        self.previous = previous
        self.next: _Block | None = None


class _Segment:
    """One stream's segment: its free blocks by (size, address), and its last block."""

    __slots__ = ("end", "free", "mapped", "top")

    def __init__(self) -> None:
        self.free: list[tuple[int, int, _Block]] = []
        self.end: _Block | None = None
        self.mapped = 0
        self.top = 0
        """The first address that nothing has had."""

    def allocate(self, size: int) -> _Block:
        place = bisect_left(self.free, (size,))
        block = self.free.pop(place)[2] if place < len(self.free) else self._grow(size)
        if block.size - size > SMALL:
            rest = _Block(block.address + size, block.size - size, block)
            self._link(rest, block.next)
            block.next, block.size = rest, size
            insort(self.free, (rest.size, rest.address, rest))
        block.free = False
        return block

    def _grow(self, size: int) -> _Block:
        end = self.end
        held = end.size if end is not None and end.free else 0
        pages = -(-(size - held) // LARGE_SEGMENT) * LARGE_SEGMENT
        if end is not None and held:
            self._take(end)
            end.size += pages
        else:
            end = _Block(self.top, pages, end)
            if end.previous is not None:
                end.previous.next = end
            self.end = end
        self.mapped += pages
        self.top += pages
        return end

    def empty(self) -> None:
        """Unmap the pages of all free blocks. What is mapped in their place later lies behind the rest here; it is as much."""
        for size, _, block in self.free:
            block.free = False
            self.mapped -= size // LARGE_SEGMENT * LARGE_SEGMENT
        self.free.clear()

    def release(self, block: _Block) -> None:
        block.free = True
        before = block.previous
        if before is not None and before.free:
            self._take(before)
            before.size += block.size
            self._link(before, block.next)
            block = before
        after = block.next
        if after is not None and after.free:
            self._take(after)
            block.size += after.size
            self._link(block, after.next)
        insort(self.free, (block.size, block.address, block))

    def _take(self, block: _Block) -> None:
        del self.free[bisect_left(self.free, (block.size, block.address))]

    def _link(self, block: _Block, following: _Block | None) -> None:
        block.next = following
        if following is None:
            self.end = block
        else:
            following.previous = block


def replay(events: Events) -> Replay:
    """Run loading, a first step and a steady one; `Replay.reserved` is what the streams' segments have mapped."""
    sizes, streams = events.sizes, events.streams
    segments = (_Segment(), _Segment(), _Segment())
    live: dict[int, _Block] = {}
    allocated = wanted = peak = slack = loaded = 0
    loading, states, steady = cut(events)
    steps = (loading, states, steady) if events.has_first else (loading, steady, states, steady)
    for step in steps:
        for event in step:
            if event > 0:
                block = segments[streams.get(event, 0)].allocate(sizes[event])
                live[event] = block
                allocated += block.size
                wanted += sizes[event]
                if allocated > peak:
                    peak, slack = allocated, allocated - wanted
            else:
                block = live.pop(-event)
                allocated -= block.size
                wanted -= sizes[-event]
                segments[streams.get(-event, 0)].release(block)
        if step is loading and events.empties:
            loaded = sum(segment.mapped for segment in segments)
            for segment in segments:
                segment.empty()
    return Replay(slack, max(loaded, sum(segment.mapped for segment in segments)) + small_bytes(events))
