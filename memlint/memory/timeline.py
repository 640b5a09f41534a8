"""From a recorded program of a few layers to the full depth, and the peaks read off it.

Layers of a uniform stack allocate alike, so five are simulated (first, second, one in the middle, last but one, last) and the
events of the middle one are repeated. A block is known by (phase, layer, how manieth allocation there); a free that refers to a block
of the layer next door refers, in the repetition, to the block next door of the copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

from memlint.memory.tensor import Ledger
from memlint.typed import NamedTuple

SIMULATED = 5
FIRST = "first_"
"""Prefix of the phases of a step that was recorded before the steady one."""
EDGE = 2
"""Layers on either side of a repetition that are simulated themselves."""
MIDDLE = EDGE
"""The layer that is repeated: the third of five."""


class Events(NamedTuple):
    """A full-depth event stream: `stream[i]` is +ident (allocate) or -ident (free); `sizes` and `components` by ident.

    `phases` are (first event, phase) in order. Steps begin at `step_begins`; optimizer states are allocated by the events from
    `states_begin` up to there.
    """

    stream: list[int]
    sizes: list[int]
    components: list[str]
    phases: list[tuple[int, str]]
    states_begin: int
    step_begins: int
    has_first: bool
    """A first step was recorded before the optimizer states."""
    streams: Mapping[int, int] = {}  # a default that nothing changes
    """The stream of each block that is not the computation's."""
    lag: int = 0
    """Freed all-gathers that cannot be used yet."""
    empties: bool = False
    """The cache is emptied after loading."""


class Peak(NamedTuple):
    """The most that is allocated during one phase, and what it consists of."""

    phase: str
    total: int
    components: Mapping[str, int]


class NotUniform(Exception):
    """The middle layers do not allocate alike; simulate all of them."""


class _Run:
    """Consecutive segments of one phase and layer, in columns, so that a repetition of a layer copies them whole.

    `order` are the events: which of the blocks made here (`sizes`, `components`, `streams` by place), then of those freed. `frees` are
    ordinals by owner: its phase, its layer, and whether that is relative to the freeing layer (absolute where one of the two is none).
    """

    def __init__(self, phase: str, layer: int) -> None:
        self.phase = phase
        self.layer = layer
        self.sizes: list[int] = []
        self.components: list[str] = []
        self.streams: dict[int, int] = {}
        self.frees: dict[tuple[str, int, bool], list[int]] = defaultdict(list)
        self.events: list[int | tuple[list[int], int]] = []
        """The place of a block made here, or of a free in its list of `frees`."""

    def order(self) -> list[int]:
        """Each event as a place in: the blocks made here, then the freed ones, list after list."""
        begins: dict[int, int] = {}
        begin = len(self.sizes)
        for ordinals in self.frees.values():
            begins[id(ordinals)] = begin
            begin += len(ordinals)
        return [event if isinstance(event, int) else begins[id(event[0])] + event[1] for event in self.events]

    def is_like(self, other: _Run) -> bool:
        """Whether both allocate and free in the same order."""
        return [isinstance(event, int) for event in self.events] == [isinstance(event, int) for event in other.events]


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


def unrolled(ledger: Ledger, simulated: int, layers: int, repeats: tuple[Repeated, ...] | None = None) -> Events:
    """The events of `layers` layers from a ledger of `simulated`. Raises `NotUniform` when that cannot be inferred."""
    repeats = uniform(simulated, layers) if repeats is None else repeats
    reach = max((repeat.period for repeat in repeats), default=0)
    runs, counts = _decode(ledger, reach if reach > 1 or len(repeats) > 1 else layers)
    if not all(_alike(by_layer, repeat) for repeat in repeats for by_layer in counts.values()):
        raise NotUniform
    stream: list[int] = []
    sizes: list[int] = [0]
    components: list[str] = [""]
    phases: list[tuple[int, str]] = []
    streams: dict[int, int] = {}
    names: dict[str, dict[int, list[int]]] = {phase: defaultdict(list) for phase in counts}
    marks: dict[str, int] = {}
    successors = _successors(runs, repeats)
    orders: dict[int, list[int]] = {}
    position = 0
    while position < len(runs):
        run = runs[position]
        repeat = next((repeat for repeat in repeats if repeat.holds(run.layer)), None)
        end = position + 1
        while repeat is not None and end < len(runs) and runs[end].phase == run.phase and repeat.holds(runs[end].layer):
            end += 1
        marks.setdefault(run.phase, len(stream))
        phases.append((len(stream), run.phase))
        copies = range(repeat.copies + 1) if repeat is not None else range(1)
        if run.phase.endswith("backward"):
            copies = copies[::-1]
        for number, copy in enumerate(copies):
            for place in range(position, end):
                steps = runs[place] if not number else successors.get(place, runs[place])
                layer = _placed(runs[place].layer, copy, repeats)
                made = range(len(sizes), len(sizes) + len(steps.sizes))
                names[run.phase][layer] += made
                sizes += steps.sizes
                components += steps.components
                for number_of_block, number_of_stream in steps.streams.items():
                    streams[made[number_of_block]] = number_of_stream
                blocks = [*made]
                try:
                    for (phase, owner, relative), ordinals in steps.frees.items():
                        held = names[phase][layer + owner if relative else _placed(owner, 0, repeats)]
                        blocks += [-held[ordinal] for ordinal in ordinals]
                except IndexError:  # a repeated layer would free what its owner does not hold
                    raise NotUniform from None
                order = orders.get(id(steps)) or orders.setdefault(id(steps), steps.order())
                stream += [blocks[event] for event in order]
        position = end
    freed = [event for event in stream if event < 0]
    if len(set(freed)) < len(freed):  # ... or no longer holds
        raise NotUniform
    begins = marks.get("accumulated", marks.get("forward", len(stream)))
    first = any(run.phase.startswith(FIRST) for run in runs)
    return Events(
        stream, sizes, components, phases, marks.get("states", begins), begins, first, streams, ledger.lag, ledger.empties
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
    born: dict[int, tuple[str, int, int]] = {}
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
                born[event] = (phase, layer, seen[layer])
                seen[layer] += 1
                place = len(run.sizes)
                run.events.append(place)
                run.sizes.append(ledger.sizes[event])
                run.components.append(ledger.components[event])
                if event in ledger.streams:
                    run.streams[place] = ledger.streams[event]
            else:
                since, owner, ordinal = born[-event]
                relative = layer >= 0 and owner >= 0 and abs(owner - layer) <= reach
                ordinals = run.frees[since, owner - layer if relative else owner, relative]
                run.events.append((ordinals, len(ordinals)))
                ordinals.append(ordinal)
    return runs, counts


def peaks(events: Events) -> list[Peak]:
    """The peak of each phase, in the order in which the phases first occur."""
    order: list[str] = []
    best: dict[str, tuple[int, int]] = {}
    running, sizes = 0, events.sizes
    bounds = [*events.phases, (len(events.stream), "")]
    for (begin, phase), (end, _) in pairwise(bounds):
        top, at = best.get(phase, (-1, 0))
        if phase not in best:
            order.append(phase)
        if running > top:
            top, at = running, begin
        for position in range(begin, end):
            event = events.stream[position]
            if event > 0:
                running += sizes[event]
                if running > top:
                    top, at = running, position + 1
            else:
                running -= sizes[-event]
        best[phase] = (top, at)
    made_of = _compositions(events, sorted({best[phase][1] for phase in order}))
    return [Peak(phase, best[phase][0], made_of[best[phase][1]]) for phase in order]


def _compositions(events: Events, ends: list[int]) -> dict[int, dict[str, int]]:
    """Live bytes by component after the first `end` events, for each of the (ascending) ends."""
    live: dict[str, int] = defaultdict(int)
    sizes, components = events.sizes, events.components
    found: dict[int, dict[str, int]] = {}
    begin = 0
    for end in ends:
        for event in events.stream[begin:end]:
            if event > 0:
                live[components[event]] += sizes[event]
            else:
                live[components[-event]] -= sizes[-event]
        found[end] = {name: size for name, size in live.items() if size}
        begin = end
    return found
