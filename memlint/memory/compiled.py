"""Code that torch.compile made: what it keeps for backward, and which tensors exist at all.

AOTAutograd traces a region's forward and backward into one graph and keeps for backward a cheapest cut of it (torch 2.13
`_functorch/partitioners.py`, `min_cut_rematerialization_partition` with inductor's settings). What the cut comes to:

- What a kernel of backward reads (matrix products, attention: `is_materialized_backwards`, `compute_intensive_ops`) is kept, and so are
  random masks and the results of reductions (`random_ops`, `ban_if_reduction`).
- Anything else is element-wise: kept, or computed again from what it was made of, whichever takes fewer bytes that are not kept
  already (`get_node_weight`); parameters are there anyway (`treat_parameters_as_free_to_save`).
- Readers of an element-wise value past the next kernel are not computed again (`ban_if_used_far_apart`): within a compiled model the
  residual stream is kept, whereas a block that is compiled by itself gets its stream as an input.

Inductor then writes element-wise operations into one kernel with those that read them (`_inductor/scheduler.py`): a tensor that only
such operations read is never in memory. What such a kernel reads lives until the kernel runs, and nothing lives beyond its last reader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from memlint.memory.autograd import Operation, Traced
from memlint.memory.machine import Machine
from memlint.memory.tensor import Ledger, Storage

REDUCES = 4
"""An operation whose result is more than so many times smaller than what it reads is a reduction (`should_ban_recomputation`)."""


class Forward:
    """Inside, forward code is compiled (when `on`, and as a part of the region around it, if there is one)."""

    def __init__(self, m: Machine, on: bool) -> None:
        self.tape, self.ledger = m.tape, m.ledger
        self.on = on and m.tape.traced is None

    def __enter__(self) -> None:
        if self.on:
            self.begin, self.tape.traced = len(self.ledger.events), []

    def __exit__(self, *error: object) -> None:
        if self.on:
            traced, self.tape.traced = self.tape.traced or [], None
            _keep(traced)
            operations = [t.operation() for t in traced]
            traced.clear()
            self.tape.casts.clear()
            _rewrite(self.ledger, self.begin, operations, owned=False)


def enter(m: Machine) -> None:
    """Compiled backward code begins here."""
    m.tape.replayed, m.tape.replays_from = [], len(m.ledger.events)


def leave(m: Machine) -> None:
    """It ends here, if it has begun."""
    operations, m.tape.replayed = m.tape.replayed, None
    if operations is not None:
        _rewrite(m.ledger, m.tape.replays_from, operations, owned=m.compiled == "model")


def end(m: Machine) -> None:
    """A graph's gradients have been added to those that were there."""
    returned = m.tape.returned
    while returned:
        if m.compiled == "model":
            m.ledger.enter("release", returned[0][0])
        returned.pop(0)


class _Cut:
    """What a region keeps for backward, as it grows."""

    def __init__(self, traced: list[Traced]) -> None:
        self.free = {ident for t in traced for ident in t.parameters}
        self.producers = {s.ident: t for t in traced for s in t.outs if s not in t.inputs}
        self.kept = {
            s.ident for t in traced if t.node is not None for s in t.saved if t.kernel or s.ident not in self.producers
        } - self.free
        self.far = _far(traced, {i for i, t in self.producers.items() if not t.kernel})

    def needed(self, storage: Storage, known: dict[int, dict[int, int]]) -> dict[int, int]:
        """Bytes by ident of what has to be kept in addition, so that backward has this; `known` remembers them by ident."""
        ident = storage.ident
        if ident in self.kept or ident in self.free:
            return {}
        if ident not in known:
            known[ident] = self._cheapest(storage, known)
        return known[ident]

    def _cheapest(self, storage: Storage, known: dict[int, dict[int, int]]) -> dict[int, int]:
        ident = storage.ident
        made = self.producers.get(ident)
        itself = {ident: storage.nbytes}
        if made is None or made.kernel or ident in self.far or storage.nbytes * REDUCES < sum(s.nbytes for s in made.inputs):
            return itself
        parts: dict[int, int] = {}
        for source in made.inputs:
            parts |= self.needed(source, known)
        return parts if sum(parts.values()) < storage.nbytes else itself

    def sources(self, storage: Storage) -> Iterable[Storage]:
        """The kept blocks that it is computed from."""
        if storage.ident in self.kept or storage.ident in self.free or storage.ident not in self.producers:
            return (storage,)
        return (source for part in self.producers[storage.ident].inputs for source in self.sources(part))


def _keep(traced: list[Traced]) -> None:
    """Let the nodes of a region hold what the cut keeps for them."""
    cut = _Cut(traced)
    for t in traced:
        if t.node is not None and not t.kernel:
            for storage in t.saved:
                cut.kept |= cut.needed(storage, {}).keys()
            t.node.saved = tuple({s.ident: s for storage in t.saved for s in cut.sources(storage)}.values())


def _far(traced: list[Traced], elementwise: Collection[int]) -> set[int]:
    """Results of operations that read an element-wise value after the first kernel that it leads to."""
    first: dict[int, int] = {}
    for place in range(len(traced) - 1, -1, -1):
        t = traced[place]
        reach = place if t.kernel else min((first.get(s.ident, len(traced)) for s in t.outs), default=len(traced))
        for s in t.inputs:
            first[s.ident] = min(first.get(s.ident, len(traced)), reach)
    return {
        out.ident
        for place, t in enumerate(traced)
        if not t.kernel and any(s.ident in elementwise and place > first[s.ident] for s in t.inputs)
        for out in t.outs
    }


def _rewrite(ledger: Ledger, begin: int, operations: list[Operation], owned: bool) -> None:
    """Take what is never in memory out of the events from `begin` on, and free the rest after its last reader.

    `owned`: the region's inputs are part of the graph; else they live as long as it runs. An element-wise result takes the place of an
    operand of its size that goes with it (`decide_inplace_update`; what was kept for backward is given away, `donated_buffer`).
    """
    events, sizes = ledger.events, ledger.sizes
    tail = events[begin:]
    gone, made = {-e for e in tail if e < 0}, {e for e in tail if e > 0}
    unseen, last, makers = _lifetimes(operations, gone, made)
    movable = made.union(*(operation.saved for operation in operations))
    due: list[list[int]] = [[] for _ in operations]
    for ident, place in last.items():
        if ident in gone and ident not in unseen:
            due[place if owned or ident in movable else -1].append(ident)
    places: list[int] = []
    done = 0
    del events[begin:]
    for position, event in enumerate(tail, begin):
        while done < len(operations) and operations[done].end <= position:
            events += [-ident for ident in due[done]]
            done += 1
        places.append(len(events))
        if event > 0 and event not in unseen:
            going = due[makers[event]] if event in makers else []
            replaced = next((ident for ident in going if sizes[ident] == sizes[event]), 0)
            if replaced and (owned or replaced in movable):
                going.remove(replaced)
                events.append(-replaced)
            events.append(event)
        elif event < 0 and -event not in unseen and -event not in last:
            events.append(event)
    for idents in due[done:]:
        events += [-ident for ident in idents]
    segments = ledger.segments
    for index in range(len(segments) - 1, -1, -1):
        position, phase, layer = segments[index]
        if position <= begin:
            break
        segments[index] = (places[position - begin] if position - begin < len(places) else len(events), phase, layer)


def _lifetimes(operations: list[Operation], gone: set[int], made: set[int]) -> tuple[set[int], dict[int, int], dict[int, int]]:
    """Blocks that only exist within a kernel; the last operation during which each other one is read; where element-wise ones are made."""
    unseen: set[int] = set()
    last: dict[int, int] = {}
    read: set[int] = set()
    makers: dict[int, int] = {}
    for place in range(len(operations) - 1, -1, -1):
        operation = operations[place]
        runs = place
        for ident in operation.outs:
            if ident in operation.inputs:
                continue
            if not operation.kernel:
                makers[ident] = place
            if not operation.kernel and ident not in read and ident in gone and ident in made:
                unseen.add(ident)
                runs = max(runs, last.get(ident, place))
            else:
                last.setdefault(ident, place)
        unseen.update(operation.fused)
        for ident in (*operation.inputs, *operation.saved):
            last[ident] = max(last.get(ident, place), runs)
            if operation.kernel:
                read.add(ident)
    return unseen, last, makers
