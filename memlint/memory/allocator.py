"""PyTorch's CUDA caching allocator, replayed over an event stream: what is reserved, and whether a capacity suffices.

Rules of torch 2.13 `c10/cuda/CUDACachingAllocator.cpp` and `c10/core/AllocatorConfig.h`: sizes rounded to 512 bytes; requests up to
1 MiB live in 2 MiB segments; up to 10 MiB in 20 MiB segments; larger ones in segments rounded to 2 MiB; the smallest free block that
fits is taken (ties: lowest address), and split when more than 1 MiB would remain; freed neighbours coalesce; before running out
of memory, every segment that is wholly free is returned to the driver and the request is tried again. Blocks of another stream
(all-gathers, reductions) come from that stream's own segments.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from itertools import accumulate, pairwise

from memlint.memory.tensor import COMPUTE, GATHER
from memlint.memory.timeline import Events
from memlint.typed import NamedTuple

MIB = 1 << 20
SMALL = MIB
"""Requests up to this size come from the small pool."""
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
LARGE_REQUEST = 10 * MIB
ROUND = 2 * MIB


class DoesNotComplete(Exception):
    """The capacity is too small for the events even after returning every free segment."""


class Replay(NamedTuple):
    """What a replay reached. `slack` are the unsplit tails of the large blocks at their peak, which `torch.cuda.max_memory_allocated`
    counts as allocated."""

    slack: int
    reserved: int


class _Block:
    """Without a constructor: a replay makes thousands, and calling one takes as long as all the rest of a split."""

    __slots__ = ("address", "free", "next", "previous", "size")
    address: int
    size: int
    free: bool
    previous: _Block | None
    next: _Block | None


ADDRESS = 48
"""Bits of an address. Free blocks are kept as whole numbers, size before address, sorted: so the allocator looks at them."""
ADDRESSES = (1 << ADDRESS) - 1


def replay(events: Events, capacity: int | None = None, expandable: bool = False) -> Replay:
    """Run loading, a first step (optimizer states appear at its end) and a second, steady step.

    A program that recorded a first step of its own has it before the states.

    Small requests are counted, not placed: together they are below 0.1 % of a step. Raises `DoesNotComplete` when `capacity`
    bytes do not suffice.
    """
    loading, states, steady = cut(events)
    small = -(-small_bytes(events) // SMALL_SEGMENT) * SMALL_SEGMENT
    limit = None if capacity is None else capacity - small
    sizes, streams = events.sizes, events.streams
    pools: tuple[list[int], ...] = ([], [], [])
    cached, stream = pools[COMPUTE], COMPUTE
    at: dict[int, _Block] = {}
    """The free blocks, by address."""
    live = [_Block()] * len(sizes)
    waiting: deque[_Block] = deque()
    reserved = allocated = wanted = peak_reserved = peak_allocated = slack = next_address = 0
    steps = (loading, states, steady) if events.has_first else (loading, steady, states, steady)
    for step in steps:
        for event in step:
            if event > 0:
                size = sizes[event]
                if streams:
                    cached = pools[streams.get(event, COMPUTE)]
                position = bisect_left(cached, size << ADDRESS)
                if position < len(cached):
                    block = at.pop(cached.pop(position) & ADDRESSES)
                else:
                    segment = LARGE_SEGMENT if size < LARGE_REQUEST and not expandable else -(-size // ROUND) * ROUND
                    if limit is not None and reserved + segment > limit:
                        reserved -= sum(_release(pool, at) for pool in pools)
                        if reserved + segment > limit:
                            raise DoesNotComplete
                    reserved += segment
                    if reserved > peak_reserved:
                        peak_reserved = reserved
                    block = _Block()
                    block.address, block.size = next_address, segment
                    block.previous = block.next = None
                    next_address += segment + 1  # a gap: segments never coalesce
                rest = block.size - size
                if rest > SMALL:
                    tail = _Block()
                    address = tail.address = block.address + size
                    following = tail.next = block.next
                    tail.size, tail.previous, tail.free = rest, block, True
                    if following is not None:
                        following.previous = tail
                    block.next = at[address] = tail
                    block.size = size
                    insort(cached, rest << ADDRESS | address)
                block.free = False
                allocated += block.size
                wanted += size
                if allocated > peak_allocated:
                    peak_allocated = allocated
                    slack = allocated - wanted
                live[event] = block
            else:
                block = live[-event]
                allocated -= block.size
                wanted -= sizes[-event]
                if streams:
                    stream = streams.get(-event, COMPUTE)
                    cached = pools[stream]
                if stream == GATHER:
                    waiting.append(block)
                    if len(waiting) <= events.lag:
                        continue
                    block = waiting.popleft()
                size, before, after = block.size, block.previous, block.next
                if before is not None and before.free:
                    del cached[bisect_left(cached, before.size << ADDRESS | before.address)]
                    size = before.size = size + before.size
                    before.next = after
                    if after is not None:
                        after.previous = before
                    block = before
                if after is not None and after.free:
                    del cached[bisect_left(cached, after.size << ADDRESS | after.address)]
                    del at[after.address]
                    size = block.size = size + after.size
                    following = block.next = after.next
                    if following is not None:
                        following.previous = block
                block.free = True
                at[block.address] = block
                insort(cached, size << ADDRESS | block.address)
        if step is loading and events.empties:
            reserved -= sum(_release(pool, at) for pool in pools)
    return Replay(slack, peak_reserved + small)


def cut(events: Events) -> tuple[list[int], list[int], list[int]]:
    """The large events of loading, of the optimizer states, and of a step."""
    sizes, stream = events.sizes, events.stream
    bounds = (0, events.states_begin, events.step_begins, len(stream))
    loading, states, steady = (
        [event for event in stream[begin:end] if sizes[event if event > 0 else -event] > SMALL] for begin, end in pairwise(bounds)
    )
    return loading, states, steady


def small_bytes(events: Events) -> int:
    """The most that small requests hold together."""
    sizes = events.sizes
    changes = [
        size if event > 0 else -size for event in events.stream if (size := sizes[event if event > 0 else -event]) <= SMALL
    ]
    return max(accumulate(changes, initial=0))


def _release(cached: list[int], at: dict[int, _Block]) -> int:
    """Return every wholly free segment to the driver; the bytes that were returned."""
    kept: list[int] = []
    returned = 0
    for key in cached:
        block = at[key & ADDRESSES]
        if block.previous is not None or block.next is not None:
            kept.append(key)
        else:
            del at[block.address]
            returned += block.size
    cached[:] = kept
    return returned


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
