"""From a recorded program of a few layers to the full depth: the events that the allocator sees, and the peaks.

Layers of a uniform stack allocate alike, so five are simulated (first, second, one in the middle, last but one, last) and the
events of the middle one are repeated. A block is known by (phase, layer, how manieth allocation there); a free that refers to a block
of the layer next door refers, in the repetition, to the block next door of the copy. What a layer does to the totals is worked out
once for all its copies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

from memlint.memory.events import SMALL, Closed, Events, Peak, closed_end
from memlint.memory.tensor import Ledger
from memlint.typed import NamedTuple

SIMULATED = 5
FIRST = "first_"
"""Prefix of the phases of a step that was recorded before the steady one."""
EDGE = 2
"""Layers on either side of a repetition that are simulated themselves."""
MIDDLE = EDGE
"""The layer that is repeated: the third of five."""


class NotUniform(Exception):
    """The middle layers do not allocate alike; simulate all of them."""


class _Run:
    """Consecutive segments of one phase and layer. `sizes`, `components` and `streams` are those of the blocks made here, by place.

    `owners` are the makers of the blocks that it frees, numbered from 1: a phase, a layer, and whether that is relative to this one
    (absolute where one of the two is none). Events are two columns, for rows are slow: 0 in `by` with the place of a block made here,
    or the number of an owner with that of its block that is freed.
    """

    def __init__(self, phase: str, layer: int) -> None:
        self.phase = phase
        self.layer = layer
        self.sizes: list[int] = []
        self.components: list[str] = []
        self.streams: dict[int, int] = {}
        self.owners: dict[tuple[str, int, bool], int] = {}
        self.by: list[int] = []
        self.places: list[int] = []

    def is_like(self, other: _Run) -> bool:
        """Whether both allocate and free in the same order."""
        return [owner > 0 for owner in self.by] == [owner > 0 for owner in other.by]


class Repeated(NamedTuple):
    """`period` consecutive simulated layers from `first` on stand for `copies` more of their kind; `end` is behind the last of these."""

    first: int
    period: int
    copies: int
    end: int

    @property
    def extra(self) -> int:
        """Layers that are not simulated."""
        return self.period * self.copies

    def holds(self, layer: int) -> bool:
        """Whether the simulated layer is one of those repeated."""
        return self.first <= layer < self.first + self.period


def uniform(simulated: int, layers: int) -> tuple[Repeated, ...]:
    """The middle one of five equal layers stands for those that are not simulated."""
    return (Repeated(MIDDLE, 1, layers - simulated, simulated),) if layers > simulated else ()


def unrolled(
    ledger: Ledger, simulated: int, layers: int, repeats: tuple[Repeated, ...] | None = None, counted: int = SMALL
) -> Events:
    """What `layers` layers do, from a ledger of `simulated`; blocks of at most `counted` bytes are not placed. Raises `NotUniform`
    when that cannot be inferred."""
    repeats = uniform(simulated, layers) if repeats is None else repeats
    reach = max((repeat.period for repeat in repeats), default=0)
    runs, counts = _decode(ledger, reach if reach > 1 or len(repeats) > 1 else layers)
    if not all(_alike(by_layer, repeat) for repeat in repeats for by_layer in counts.values()):
        raise NotUniform
    whole = _Whole(repeats, counted)
    successors = _successors(runs, repeats)
    position = 0
    while position < len(runs):
        run = runs[position]
        repeat = next((repeat for repeat in repeats if repeat.holds(run.layer)), None)
        end = position + 1
        while repeat is not None and end < len(runs) and runs[end].phase == run.phase and repeat.holds(runs[end].layer):
            end += 1
        whole.enter(run.phase)
        copies = range(repeat.copies + 1) if repeat is not None else range(1)
        if run.phase.endswith("backward"):
            copies = copies[::-1]
        for number, copy in enumerate(copies):
            for place in range(position, end):
                steps = runs[place] if not number else successors.get(place, runs[place])
                whole.add(steps, _placed(runs[place].layer, copy, repeats))
        position = end
    return whole.events(ledger)


class _Shape:
    """What a phase allocates in one layer, whichever layer that is: the same object for all that are alike."""

    __slots__ = ("components", "counted", "grown", "ranks", "sizes")

    def __init__(self, sizes: list[int], components: list[str], counted: int) -> None:
        self.sizes = sizes
        self.components = components
        self.counted = counted
        self.ranks = [*accumulate([size > counted for size in sizes], initial=0)]
        """The place of each among those that the allocator sees, and their number."""
        self.grown: dict[_Run, _Shape] = {}

    def after(self, run: _Run) -> _Shape:
        """With what another run allocates."""
        if run not in self.grown:
            more = (self.sizes + run.sizes, self.components + run.components, self.counted)
            self.grown[run] = _Shape(*more) if run.sizes else self
        return self.grown[run]


class _Blocks:
    """What a phase allocates in one layer of the whole."""

    __slots__ = ("freed", "frees", "shape")

    def __init__(self, shape: _Shape) -> None:
        self.shape = shape
        self.frees: list[int] = []
        """The events that would free those of them that the allocator sees."""
        self.freed: list[tuple[_Run, int]] = []
        """What did free some: a run, and their number among its owners."""


class _Effect:
    """What a run does, given what it allocates and the blocks of which it frees some: the same for all copies of a layer.

    Its `top` is the highest that the total is above that before it: after `top_events` events, of which the allocator sees `top_placed`
    and the others hold `top_small`.
    """

    __slots__ = (
        "change", "closed", "most_small", "order", "run", "shapes", "sizes", "small", "streams", "top", "top_events", "top_placed",
        "top_small", "total",
    )  # fmt: skip

    def __init__(self, run: _Run, shapes: Sequence[_Shape]) -> None:
        self.run, self.shapes = run, shapes
        made, counted = shapes[0], shapes[0].counted
        begins = [*accumulate([shape.ranks[-1] for shape in shapes], initial=0)]
        self.sizes = [size for size in run.sizes if size > counted]
        self.streams = [(made.ranks[place], stream) for place, stream in run.streams.items() if run.sizes[place] > counted]
        self.order: list[int] = []
        """The events that the allocator sees: places among the blocks that it sees, those made here and then each owner's."""
        self.top_events = self.top_placed = self.top_small = 0
        total = top = small = most_small = 0
        for index, (owner, place) in enumerate(zip(run.by, run.places, strict=True), 1):
            shape = shapes[owner]
            if place >= len(shape.sizes):  # a repeated layer would free what its owner does not hold
                raise NotUniform
            size = shape.sizes[place]
            change = -size if owner else size
            total += change
            if size > counted:
                self.order.append(begins[owner] + shape.ranks[place])
            else:
                small += change
                most_small = max(most_small, small)
            if total > top:
                top, self.top_events, self.top_placed, self.top_small = total, index, len(self.order), small
        self.total, self.top, self.small, self.most_small = total, top, small, most_small
        self.change: dict[str, int] = {}
        self.add_up(self.change, len(run.by))
        self.closed: Closed | None = None
        """What of the events that the allocator sees are closed; None while nobody asked."""

    def add_up(self, live: dict[str, int], events: int) -> None:
        """Add to each component what so many of the events do."""
        for owner, place in zip(self.run.by[:events], self.run.places, strict=False):
            shape = self.shapes[owner]
            component, size = shape.components[place], shape.sizes[place]
            live[component] = live.get(component, 0) + (-size if owner else size)


class _Whole:
    """The run at full depth, as far as its runs are added."""

    def __init__(self, repeats: tuple[Repeated, ...], counted: int) -> None:
        self.repeats = repeats
        self.nothing = nothing = _Shape([], [], counted)
        self.parts: dict[str, list[int]] = {"load": [], "buffers": [], "first": [], "states": [], "step": []}
        self.part = self.parts["load"]
        self.updates: dict[str, int] = {}
        """How many events of its part come before an optimizer step."""
        self.sizes = [0]
        self.streams: dict[int, int] = {}
        self.blocks: dict[tuple[str, int], _Blocks] = defaultdict(lambda: _Blocks(nothing))
        self.effects: dict[tuple[object, ...], _Effect] = {}
        self.live: dict[str, int] = {}
        self.total = self.small = self.most_small = 0
        self.highest = self.top = self.requested = 0
        """Of the step: its highest total, after how many events, and what is placed then."""
        self.closed: list[tuple[int, Closed]] = []
        self.peaks: dict[str, tuple[int, dict[str, int], _Effect | None]] = {}
        """The highest total of each phase, what was live before the run that reaches it, and that run's effect."""

    def enter(self, phase: str) -> None:
        """The runs from here on belong to this phase."""
        if self.part is not self.parts["step"]:
            if phase in ("buffers", "states"):
                self.part = self.parts[phase]
            elif phase in (FIRST + "accumulated", FIRST + "forward"):
                self.part = self.parts["first"]
            elif phase in ("accumulated", "forward"):
                self.part = self.parts["step"]
        if phase.endswith("optimizer_step"):
            self.updates.setdefault(phase, len(self.part))
        if phase not in self.peaks or self.total > self.peaks[phase][0]:
            self.peaks[phase] = (self.total, dict(self.live), None)

    def add(self, run: _Run, layer: int) -> None:
        """A run, in this layer of the whole."""
        own = self.blocks[run.phase, layer]
        own.shape = own.shape.after(run)
        owners = [
            self.blocks[phase, layer + owner if relative else _placed(owner, 0, self.repeats)]
            for phase, owner, relative in run.owners
        ]
        held = [blocks.shape for blocks in owners]
        effect = self.effects.get((run, *held))
        if effect is None:
            effect = self.effects[(run, *held)] = _Effect(run, [self.nothing.after(run), *held])
        first = len(self.sizes)
        self.sizes += effect.sizes
        own.frees += range(-first, -len(self.sizes), -1)
        events = [*range(first, len(self.sizes))]
        for place, stream in effect.streams:
            self.streams[events[place]] = stream
        for number, blocks in enumerate(owners, 1):
            blocks.freed.append((run, number))
            events += blocks.frees
        placed = [*map(events.__getitem__, effect.order)]
        if self.part is self.parts["step"]:
            if effect.closed is None:
                effect.closed = closed_end(placed, self.sizes)
            if effect.closed.events:
                self.closed.append((len(self.part) + len(placed) - effect.closed.events, effect.closed))
        self.part += placed
        if self.total + effect.top > self.peaks[run.phase][0]:
            self.peaks[run.phase] = (self.total + effect.top, dict(self.live), effect)
        if self.part is self.parts["step"] and self.total + effect.top > self.highest:
            self.highest = self.total + effect.top
            self.top = len(self.part) - len(effect.order) + effect.top_placed
            self.requested = self.highest - self.small - effect.top_small
        self.most_small = max(self.most_small, self.small + effect.most_small)
        self.total += effect.total
        self.small += effect.small
        for component, change in effect.change.items():
            self.live[component] = self.live.get(component, 0) + change

    def events(self, ledger: Ledger) -> Events:
        """All of it. Raises `NotUniform` where a repeated layer would free what its owner no longer holds."""
        for frees in {tuple(blocks.freed) for blocks in self.blocks.values()}:
            freed = [place for run, number in frees for owner, place in zip(run.by, run.places, strict=True) if owner == number]
            if len(set(freed)) < len(freed):
                raise NotUniform
        peaks = []
        for phase, (total, live, effect) in self.peaks.items():
            if effect is not None:
                effect.add_up(live, effect.top_events)
            peaks.append(Peak(phase, total, {component: size for component, size in live.items() if size}))
        loading, buffers, first, states, step = self.parts.values()
        return Events(
            loading=loading,
            buffers=buffers,
            first=first,
            states=states,
            step=step,
            updates=self.updates.get("optimizer_step", len(step)),
            first_updates=self.updates.get(FIRST + "optimizer_step"),
            top=self.top,
            requested=self.requested,
            sizes=self.sizes,
            small=self.most_small,
            peaks=peaks,
            streams=self.streams,
            lag=ledger.lag,
            empties=ledger.empties,
            empties_steps=ledger.empties_steps,
            closed=self.closed,
            restarts=ledger.restarts,
        )


def _alike(by_layer: Mapping[int, int], repeat: Repeated) -> bool:
    """Whether the layers around a repetition allocate as many blocks as those a period later, the last one apart."""
    first, period, _, end = repeat
    pairs = [(layer, layer + period) for layer in range(first - 1, first + period) if layer + period < end - 1]
    return all(by_layer.get(layer, 0) == by_layer.get(later, 0) for layer, later in pairs)


def _successors(runs: list[_Run], repeats: tuple[Repeated, ...]) -> dict[int, _Run]:
    """What the later copies of a layer do: what its successor a period later does, whose references reach back over such layers only.

    The first copy follows on the simulated layers before it, which may hold more or fewer blocks than the repeated ones.
    """
    places: dict[tuple[str, int], list[int]] = defaultdict(list)
    for position, run in enumerate(runs):
        places[run.phase, run.layer].append(position)
    found: dict[int, _Run] = {}
    for (phase, layer), positions in places.items():
        repeat = next((repeat for repeat in repeats if repeat.holds(layer)), None)
        if repeat is None:
            continue
        other = layer - repeat.period if phase.endswith("backward") else layer + repeat.period
        if not repeat.first - EDGE < other < repeat.end - 1:
            continue
        for position, successor in zip(positions, places.get((phase, other), []), strict=False):
            if runs[position].is_like(runs[successor]):
                found[position] = runs[successor]
    return found


def _placed(layer: int, copy: int, repeats: tuple[Repeated, ...]) -> int:
    """The full-depth index of a simulated layer (in the `copy`-th repetition if it is repeated)."""
    for repeat in repeats:
        if repeat.holds(layer):
            return layer + copy * repeat.period + sum(r.extra for r in repeats if r.first < repeat.first)
    return layer + sum(repeat.extra for repeat in repeats if layer >= repeat.first)


def _decode(ledger: Ledger, reach: int) -> tuple[list[_Run], dict[str, dict[int, int]]]:
    """Runs with symbolic references, and how many blocks each phase allocates in each layer.

    A block of a layer at most `reach` away is known by its distance, one of another layer by its place.
    """
    bounds = [begin for begin, _, _ in ledger.segments] + [len(ledger.events)]
    makers: dict[int, _Run] = {}
    ordinals: dict[int, int] = {}
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    runs: list[_Run] = []
    for index, (begin, phase, layer) in enumerate(ledger.segments):
        seen = counts[phase]
        if begin == bounds[index + 1]:
            continue
        if not runs or (runs[-1].phase, runs[-1].layer) != (phase, layer):
            runs.append(_Run(phase, layer))
        run = runs[-1]
        for event in ledger.events[begin : bounds[index + 1]]:
            if event > 0:
                makers[event], ordinals[event] = run, seen[layer]
                seen[layer] += 1
                run.by.append(0)
                run.places.append(len(run.sizes))
                if event in ledger.streams:
                    run.streams[len(run.sizes)] = ledger.streams[event]
                run.sizes.append(ledger.sizes[event])
                run.components.append(ledger.components[event])
            else:
                maker = makers[-event]
                owner = maker.layer
                relative = layer >= 0 and owner >= 0 and abs(owner - layer) <= reach
                key = (maker.phase, owner - layer if relative else owner, relative)
                run.by.append(run.owners.setdefault(key, len(run.owners) + 1))
                run.places.append(ordinals[-event])
    return runs, counts
