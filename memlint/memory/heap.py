"""What PyTorch's CUDA caching allocator holds, and how events change it.

Rules of torch 2.13 `c10/cuda/CUDACachingAllocator.cpp` and `c10/core/AllocatorConfig.h`: sizes rounded to 512 bytes; requests up to
1 MiB live in 2 MiB segments; up to 10 MiB in 20 MiB segments; larger ones in segments rounded to 2 MiB; the smallest free block that
fits is taken (ties: lowest address), and split when more than 1 MiB would remain; freed neighbours coalesce; before running out
of memory, every segment that is wholly free is returned to the driver and the request is tried again. Blocks of another stream
(all-gathers, reductions) come from that stream's own segments.

With `expandable_segments:True` (there `ExpandableSegment`, `try_allocate_expandable_block`) each stream has one segment, whose free end
grows by pages. Under pressure the pages of any free block are unmapped and mapped again elsewhere (`release_cached_blocks`,
`unmap_block`), so a step completes as soon as what is allocated fits.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping

from memlint.memory.events import SMALL, Closed, Events
from memlint.memory.order import Part
from memlint.memory.tensor import COMPUTE, GATHER, REDUCE

MIB = 1 << 20
LARGE_SEGMENT = 20 * MIB
LARGE_REQUEST = 10 * MIB
ROUND = 2 * MIB
PAGE = 20 * MIB
"""Of an expandable segment."""


class DoesNotComplete(Exception):
    """The capacity is too small for the events even after returning every free segment."""


class _Block:
    """Without a constructor: a replay makes thousands, and calling one takes as long as all the rest of a split.

    `key` is its place among the free blocks, 0 while it is not free.
    """

    __slots__ = ("address", "key", "next", "previous", "size")
    address: int
    key: int
    size: int
    previous: _Block
    next: _Block


ADDRESS = 48
"""Bits of an address. Free blocks are kept as whole numbers, size before address, sorted: so the allocator looks at them."""
ADDRESSES = (1 << ADDRESS) - 1


class _Pool:
    """What one stream has. `edge` lies on either side of its segments, and is never free: the last block of a segment precedes it."""

    __slots__ = ("edge", "end", "free", "lost")

    def __init__(self, begin: int) -> None:
        self.free: list[int] = []
        self.end = begin
        self.lost = 0
        """What is mapped and used no more."""
        self.edge = _Block()
        self.edge.address = self.edge.size = self.edge.key = 0
        self.edge.previous = self.edge.next = self.edge

    def segment(self, size: int) -> _Block:
        """A new segment, beyond a gap: segments never coalesce."""
        self.end += 1
        self.edge.previous = self.edge
        return self._block(size)

    def lacking(self, size: int) -> int:
        """By how much the only segment has to grow for a request: pages, beyond its free end."""
        last = self.edge.previous
        return -(-(size - last.size if last.key else size) // PAGE) * PAGE

    def extension(self, size: int) -> _Block:
        """The last block, so much larger, when it is free; else a new one behind it."""
        last = self.edge.previous
        if not last.key:
            return self._block(size)
        del self.free[bisect_left(self.free, last.key)]
        last.size += size
        self.end += size
        return last

    def _block(self, size: int) -> _Block:
        block = _Block()
        block.address, block.size = self.end, size
        block.previous, block.next = self.edge.previous, self.edge
        block.previous.next = self.edge.previous = block
        self.end += size
        return block

    def release(self, at: Mapping[int, _Block]) -> int:
        """Return every wholly free segment to the driver; the bytes that were returned."""
        kept: list[int] = []
        returned = 0
        for key in self.free:
            block = at[key & ADDRESSES]
            if block.previous is block.next:
                returned += block.size
            else:
                kept.append(key)
        self.free[:] = kept
        return returned

    def unmap(self, at: Mapping[int, _Block]) -> int:
        """Unmap the pages of all free blocks; the bytes that were unmapped. What is mapped in their place later lies behind the rest here;
        it is as much."""
        unmapped = 0
        for key in self.free:
            block = at[key & ADDRESSES]
            block.key = 0
            unmapped += block.size // PAGE * PAGE
            self.lost += block.size % PAGE
        self.free.clear()
        return unmapped


class Heap:
    """The blocks of a run at one point of it."""

    def __init__(self, events: Events, expandable: bool = False) -> None:
        self.events, self.expandable = events, expandable
        self.pools = [_Pool(stream << ADDRESS - 2) for stream in (COMPUTE, GATHER, REDUCE)]
        self.at: dict[int, _Block] = {}
        """Each block that ever began at an address: it is used again when the next one begins there."""
        self.live = [self.pools[COMPUTE].edge] * len(events.sizes)
        """By ident."""
        self.waiting: deque[_Block] = deque()
        """All-gathers that are freed, but that the computation still uses."""
        self.reserved = self.peak = 0
        """What the driver has given, and the most of it."""
        self.loading = 0
        """The most of it while the model was loaded, where that is counted by itself."""
        self.slack = 0
        """What live blocks had beyond what was requested, when that was the most."""

    def copy(self) -> Heap:
        """Another one that goes on from here."""
        made = Heap(self.events, self.expandable)
        copies = {block: _Block() for block in self.at.values()}
        for pool, other in zip(self.pools, made.pools, strict=True):
            copies[pool.edge] = other.edge
            other.free, other.end, other.lost = [*pool.free], pool.end, pool.lost
        for block, copied in copies.items():
            copied.address, copied.size, copied.key = block.address, block.size, block.key
            copied.previous, copied.next = copies[block.previous], copies[block.next]
        made.at = {address: copies[block] for address, block in self.at.items()}
        made.live = [copies[block] for block in self.live]
        made.waiting.extend(copies[block] for block in self.waiting)
        made.reserved, made.peak, made.slack, made.loading = self.reserved, self.peak, self.slack, self.loading
        return made

    def clear(self) -> None:
        """Take the blocks apart: nothing can happen here any more."""
        for block in self.at.values():
            del block.previous, block.next

    @property
    def allocated(self) -> int:
        """What live blocks have, with the tails that are too small to be split off."""
        idle = sum(pool.lost + sum(key >> ADDRESS for key in pool.free) for pool in self.pools)
        return self.reserved - idle - sum(block.size for block in self.waiting)

    def empty(self) -> None:
        """`torch.cuda.empty_cache()`."""
        self.reserved -= sum(pool.unmap(self.at) if self.expandable else pool.release(self.at) for pool in self.pools)

    def run(self, part: Part, limit: int | None = None, stops: bool = False) -> int | None:
        """Let these events happen. Where more than `limit` would be reserved, it is tried again without free segments, and raises
        `DoesNotComplete` if that does not help; or if it `stops`, the place of that event is returned, which has not happened.

        What is free follows from what is live: of closed events only the releases matter, as long as none needs another segment.
        """
        done = 0
        for begin, closed in (*part.closed, (len(part.events), None)):
            place = self._each(part.events[done:begin], limit, stops)
            if place is not None:
                return done + place
            done = begin
            if closed is not None and self._has_room(closed):
                self._each([part.events[begin + place] for place in closed.releases])
                done += closed.events
        return None

    def _has_room(self, closed: Closed) -> bool:
        """Whether all requests find a place in the largest free blocks, if nowhere else."""
        if self.events.streams:
            return False
        room = 0
        for key in reversed(self.pools[COMPUTE].free):
            beyond = (key >> ADDRESS) - closed.largest
            if beyond <= 0:
                break
            room += beyond
            if room >= closed.room:
                return True
        return False

    def _each(self, stream: list[int], limit: int | None = None, stops: bool = False) -> int | None:
        """Event after event."""
        expandable, lag = self.expandable, 0 if self.expandable else self.events.lag
        sizes, streams = self.events.sizes, self.events.streams
        pools, at, live, waiting = self.pools, self.at, self.live, self.waiting
        pool = pools[COMPUTE]
        free = pool.free
        for event in stream:
            if event > 0:
                size = sizes[event]
                if streams:
                    pool = pools[streams.get(event, COMPUTE)]
                    free = pool.free
                position = bisect_left(free, size << ADDRESS)
                if position < len(free):
                    block = at[free.pop(position) & ADDRESSES]
                else:
                    more = pool.lacking(size) if expandable else _segment(size)
                    if limit is not None and self.reserved + more > limit:
                        if stops:
                            return stream.index(event)
                        self.empty()
                        if self.reserved + more > limit:
                            raise DoesNotComplete
                    self.reserved += more
                    self.peak = max(self.peak, self.reserved)
                    block = pool.extension(more) if expandable else pool.segment(more)
                    at[block.address] = block
                rest = block.size - size
                if rest > SMALL:
                    address = block.address + size
                    tail = at.get(address)
                    if tail is None:
                        tail = at[address] = _Block()
                        tail.address = address
                    following = tail.next = block.next
                    following.previous = tail
                    tail.previous = block
                    block.next = tail
                    block.size = size
                    tail.size = rest
                    tail.key = key = rest << ADDRESS | address
                    insort(free, key)
                block.key = 0
                live[event] = block
            else:
                block = live[-event]
                if streams:
                    where = streams.get(-event, COMPUTE)
                    free = pools[where].free
                    if where == GATHER:
                        waiting.append(block)
                        if len(waiting) <= lag:
                            continue
                        block = waiting.popleft()
                size = block.size
                after = block.next
                if after.key:
                    del free[bisect_left(free, after.key)]
                    size += after.size
                    after = block.next = after.next
                    after.previous = block
                before = block.previous
                if before.key:
                    del free[bisect_left(free, before.key)]
                    size += before.size
                    before.next = after
                    after.previous = before
                    block = before
                block.size = size
                block.key = key = size << ADDRESS | block.address
                insort(free, key)
        return None


def _segment(size: int) -> int:
    """What the driver is asked for, for a request."""
    return LARGE_SEGMENT if size < LARGE_REQUEST else -(-size // ROUND) * ROUND
