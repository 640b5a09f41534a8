"""What a run does one after the other, from events that have each part once.

Optimizers make their states inside their first step, when the gradients are there and activations have left holes (torch 2.13
`optim/adamw.py`, `_init_group`; bitsandbytes 0.50 `optim/optimizer.py`, `init_state`). The next step meets them and may need more.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import neg

from memlint.memory.events import Closed, Events
from memlint.typed import NamedTuple


class Part(NamedTuple):
    """Events, and whether the allocator's cache is emptied after them."""

    events: list[int]
    empties: bool = False
    restarts: bool = False
    """What was reserved until then is counted by itself."""
    closed: Sequence[tuple[int, Closed]] = ()
    """Where some begin that are closed."""

    def between(self, begin: int, end: int | None = None) -> Part:
        """A piece of it; without `end` the rest, with what comes after."""
        last = len(self.events) if end is None else end
        closed = [(place - begin, rest) for place, rest in self.closed if begin <= place and place + rest.events <= last]
        piece = Part(self.events[begin:last], closed=closed)
        return piece if end is not None else piece._replace(empties=self.empties, restarts=self.restarts)


def order_of(events: Events) -> tuple[Part, ...]:
    """Loading, buffers, the first step with the states inside, a steady one at the end.

    A first step that was not recorded is the steady one without states. One without an optimizer step is the first micro-batch of
    several, and comes before the last one of each step.
    """
    first, step, updates = events.first, events.step, events.updates
    head = (Part(events.loading, events.empties, events.restarts), Part(events.buffers))
    steady = Part(step, events.empties_steps, closed=events.closed)
    once: tuple[Part, ...]
    if events.first_updates is not None:
        own = events.first_updates
        once = (Part(first[:own]), Part(events.states), Part(first[own:]), steady)
        return (*head, *once, *([again(events)] if events.empties_steps else ()))
    once = (Part(first), steady.between(0, updates), Part(events.states), steady.between(updates))
    return (*head, *once, again(events))


def again(events: Events) -> Part:
    """The step after a steady one.

    Where that frees as much of the first step's as it leaves behind of its own (outputs that a name holds), the two change places. Else
    micro-batches start over: gradients were dropped.
    """
    step, sizes = events.step, events.sizes
    both = {*step}
    if both.issuperset(map(neg, both)):  # what it makes goes, and nothing else does
        return Part(step, closed=events.closed)
    inherited = [-event for event in step if event < 0 and -event not in both]
    leaves = [event for event in step if event > 0 and -event not in both]
    if [sizes[block] for block in inherited] == [sizes[block] for block in leaves]:
        places = dict(zip([*inherited, *leaves], [*leaves, *inherited], strict=True))
        step = [places.get(event, event) if event > 0 else -places.get(-event, -event) for event in step]
        return Part(step, closed=events.closed)
    before = [*(-event for event in leaves), *events.first]
    return Part([*before, *step], closed=[(len(before) + place, rest) for place, rest in events.closed])
