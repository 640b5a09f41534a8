"""The replay against a plain model of the same allocator: lists of blocks in the order of their addresses, searched from end to end."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from memlint.memory.allocator import Replay, Replays
from memlint.memory.events import Events, closed_end
from memlint.memory.heap import DoesNotComplete
from memlint.memory.order import order_of
from memlint.memory.tensor import COMPUTE, GATHER, REDUCE

MIB = 1 << 20
SIZES = (1.5, 2, 3.5, 8, 9.5, 10, 10.5, 19, 20, 21, 33.5, 64, 100)
"""MiB: on either side of where the allocator's rules change."""


GONE = -1
"""In place of a number."""


class Plain:
    """Each stream's segments are lists of [size, number of the allocation that holds it or None]."""

    def __init__(self, events: Events, capacity: int | None, expandable: bool) -> None:
        self.events, self.capacity, self.expandable = events, capacity, expandable
        self.pools: dict[int, list[list[list[int | None]]]] = {COMPUTE: [], GATHER: [], REDUCE: []}
        self.made: list[int] = []
        """The ident of each allocation: those of a step are made twice."""
        self.live: dict[int, int] = {}
        self.waiting: list[int] = []
        self.reserved = self.highest = 0

    def allocate(self, ident: int) -> None:
        size, pool = self.events.sizes[ident], self.pools[self.events.streams.get(ident, COMPUTE)]
        fitting = [
            (block[0], number, place)
            for number, segment in enumerate(pool)
            for place, block in enumerate(segment)
            if block[1] is None and block[0] >= size
        ]
        if not fitting:
            fitting = [self.grow(pool, size)]
        _, number, place = min(fitting)
        block = pool[number][place]
        rest = block[0] - size
        block[1] = self.live[ident] = len(self.made)
        self.made.append(ident)
        if rest > MIB:
            block[0] = size
            pool[number].insert(place + 1, [rest, None])

    def grow(self, pool: list[list[list[int | None]]], size: int) -> tuple[int, int, int]:
        if self.expandable:
            if not pool:
                pool.append([])
            held = pool[0].pop()[0] if pool[0] and pool[0][-1][1] is None else 0
            more = -(-(size - held) // (20 * MIB)) * 20 * MIB
            pool[0].append([held + more, None])
        else:
            held, more = 0, 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            if self.capacity is not None and self.reserved + more > self.capacity:
                self.release()
                if self.reserved + more > self.capacity:
                    raise DoesNotComplete
            pool.append([[more, None]])
        self.reserved += more
        self.highest = max(self.highest, self.reserved)
        return held + more, len(pool) - 1, len(pool[-1]) - 1

    def release(self) -> None:
        """Free segments go; of an expandable one the pages of free blocks, which are used no more."""
        for segments in self.pools.values():
            for segment in list(segments):
                if self.expandable:
                    for block in segment:
                        if block[1] is None:
                            block[1] = GONE
                            self.reserved -= block[0] // (20 * MIB) * 20 * MIB
                elif len(segment) == 1 and segment[0][1] is None:
                    self.reserved -= segment[0][0]
                    segments.remove(segment)

    def free(self, ident: int) -> None:
        stream, made = self.events.streams.get(ident, COMPUTE), self.live.pop(ident)
        if stream == GATHER and not self.expandable:
            self.waiting.append(made)
            if len(self.waiting) <= self.events.lag:
                return
            made = self.waiting.pop(0)
        for segment in self.pools[stream]:
            for place, block in enumerate(segment):
                if block[1] == made:
                    block[1] = None
                    for left in (place, place - 1):
                        if left >= 0 and left + 1 < len(segment) and segment[left][1] is None and segment[left + 1][1] is None:
                            segment[left][0] += segment.pop(left + 1)[0]
                    return
        raise AssertionError("not allocated")

    def tails(self) -> int:
        """What live blocks exceed their requests by."""
        blocks = [block for pool in self.pools.values() for segment in pool for block in segment]
        held = [(size, made) for size, made in blocks if made in self.live.values()]
        return sum(size - self.events.sizes[self.made[made]] for size, made in held)


def plainly(events: Events, capacity: int | None, expandable: bool) -> Replay:
    """What the plain model reaches."""
    plain = Plain(events, capacity, expandable)
    slack = loading = 0
    parts = order_of(events)
    for part in parts:
        top = len(part.events) - len(events.step) + events.top if part is parts[-1] else None
        for number, event in enumerate(part.events, 1):
            plain.allocate(event) if event > 0 else plain.free(-event)
            if number == top:
                slack = plain.tails()
        if part.empties:
            plain.release()
        if part.restarts:
            loading, plain.highest = plain.highest, plain.reserved
    return Replay(slack, plain.highest, loading, plain.reserved)


@st.composite
def programs(draw: st.DrawFn) -> Events:
    """Loading, buffers, states and steps that free what they allocate, on three streams."""
    sizes = [0]
    parts: dict[str, list[int]] = {}
    for name, most in {"loading": 6, "buffers": 2, "first": 15, "states": 4, "step": 40}.items():
        live: list[int] = []
        events = parts[name] = []
        for pick in draw(st.lists(st.integers(0, 1 << 16), min_size=int(name == "step"), max_size=most)):
            if live and pick % 2:
                events.append(-live.pop(pick // 2 % len(live)))
            else:
                live.append(len(sizes))
                events.append(len(sizes))
                sizes.append(int(SIZES[pick // 2 % len(SIZES)] * MIB))
        if name in ("first", "step"):
            events += [-ident for ident in reversed(live)]
    totals = [
        *accumulate((sizes[event] if event > 0 else -sizes[-event] for part in parts.values() for event in part), initial=0)
    ]
    totals = totals[-len(parts["step"]) - 1 :]
    top = totals.index(max(totals))
    return Events(
        **parts,
        updates=draw(st.integers(0, len(parts["step"]))),
        first_updates=draw(st.none() | st.integers(0, len(parts["first"]))),
        top=top,
        requested=totals[top],
        sizes=sizes,
        small=0,
        peaks=[],
        streams=draw(st.dictionaries(st.integers(1, len(sizes)), st.sampled_from([GATHER, REDUCE]), max_size=len(sizes) // 2)),
        lag=draw(st.integers(0, 2)),
        empties=draw(st.booleans()),
        empties_steps=draw(st.booleans()),
        restarts=draw(st.booleans()),
    )


@settings(max_examples=300, deadline=None)
@given(events=programs(), expandable=st.booleans())
def test_a_replay_equals_the_plain_model(events: Events, expandable: bool) -> None:
    assert Replays(events, expandable).unlimited() == plainly(events, None, expandable)


@settings(max_examples=300, deadline=None)
@given(events=programs(), share=st.floats(0.5, 1), further=st.floats(0, 1))
def test_a_capacity_suffices_where_it_does_for_the_plain_model(events: Events, share: float, further: float) -> None:
    """Also when it goes on from where a smaller one has no more room."""
    unlimited = Replays(events).unlimited()
    low = int(unlimited.reserved * share)
    replays = Replays(events, low=low)
    assert replays.unlimited() == unlimited
    capacity = int(low + (unlimited.reserved - low) * further)
    try:
        plain = plainly(events, capacity, False)
        expected: tuple[int, int] | None = (plain.reserved, plain.left)
    except DoesNotComplete:
        expected = None
    try:
        replayed = replays.on_card(capacity)
        found: tuple[int, int] | None = (replayed.reserved, replayed.left)
    except DoesNotComplete:
        found = None
    assert found == expected


@st.composite
def programs_with_layers(draw: st.DrawFn) -> Events:
    """A large block for a start; layers that keep a block each on the way there, and drop it on the way back after blocks of their own."""
    sizes = [0, draw(st.sampled_from([128, 256, 512, 1024])) * MIB]
    kept = []
    step = [1, -1]
    closed = []
    for _ in range(draw(st.integers(1, 4))):
        for size in draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4)):
            sizes.append(int(size * MIB))
            step.append(len(sizes) - 1)
        kept.append(step[-1])
        step += [-ident for ident in range(kept[-1] - 1, 1, -1) if ident not in kept and -ident not in step]
    for block in reversed(kept):
        begin, live = len(step), [block]
        for pick in draw(st.lists(st.integers(0, 1 << 16), min_size=16, max_size=40)):
            if pick % 2 and live:
                step.append(-live.pop(pick // 2 % len(live)))
            else:
                sizes.append(int(SIZES[pick // 2 % len(SIZES)] * MIB))
                live.append(len(sizes) - 1)
                step.append(live[-1])
        step += [-ident for ident in live]
        end = closed_end(step[begin:], sizes)
        if end.events:
            closed.append((len(step) - end.events, end))
    totals = [*accumulate((sizes[event] if event > 0 else -sizes[-event] for event in step), initial=0)]
    top = totals.index(max(totals))
    return Events([], [], [], [], step, len(step), None, top, totals[top], sizes, 0, [], closed=closed)


@settings(max_examples=200, deadline=None)
@given(events=programs_with_layers(), expandable=st.booleans(), share=st.floats(0.9, 1))
def test_closed_events_that_have_room_change_nothing(events: Events, expandable: bool, share: float) -> None:
    plain = plainly(events, None, expandable)
    assert Replays(events, expandable).unlimited() == plain
    low = int(plain.reserved * share)
    if not expandable and low >= max(events.sizes):
        try:
            expected: int | None = plainly(events, low, False).reserved
        except DoesNotComplete:
            expected = None
        try:
            found: int | None = Replays(events, low=low).on_card(low).reserved
        except DoesNotComplete:
            found = None
        assert found == expected


def test_what_closed_events_need() -> None:
    """A block that stays, then eight of 8 MiB, two of them live at a time: when the second is asked for, the first has 8 MiB and perhaps 1
    that is not split off, and two holes around it of less than 8 MiB are no place. 8 + 1 + 8, and 8 for the first hole."""
    sizes = [0, *([8 * MIB] * 10)]
    events = [1, 2, 3, -1, 4, -3, 5, -4, 6, -5, 7, -6, 8, -7, 9, -8, 10, -9, -10]
    end = closed_end(events, sizes)
    assert (end.events, list(end.releases), end.room, end.largest) == (17, [1], 17 * MIB, 8 * MIB)


@settings(max_examples=100, deadline=None)
@given(events=programs(), share=st.floats(0.5, 1), room=st.floats(0.4, 1.1))
def test_the_smallest_capacity_suffices(events: Events, share: float, room: float) -> None:
    unlimited = Replays(events).unlimited()
    reserved = max(unlimited.reserved, unlimited.loading)
    low = int(reserved * share)
    replays = Replays(events, low=low)
    smallest = replays.smallest_capacity(low, reserved, int(reserved * room))
    assert replays.on_card(smallest).reserved <= smallest <= reserved
