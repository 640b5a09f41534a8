"""What a run does one after the other, from events that have each part once.

Optimizers make their states inside their first step, when the gradients are there and activations have left holes (torch 2.13
`optim/adamw.py`, `_init_group`; bitsandbytes 0.50 `optim/optimizer.py`, `init_state`). The next step meets them and may need more.
"""

from __future__ import annotations

from memlint.memory.events import Events
from memlint.typed import NamedTuple


class Part(NamedTuple):
    """Events, and whether the allocator's cache is emptied after them."""

    events: list[int]
    empties: bool = False
    restarts: bool = False
    """What was reserved until then is counted by itself."""


def order_of(events: Events) -> tuple[Part, ...]:
    """Loading, buffers, the first step with the states inside, a steady one at the end.

    A first step that was not recorded is the steady one without states. One without an optimizer step is the first micro-batch of
    several, and comes before the last one of each step.
    """
    first, step, updates = events.first, events.step, events.updates
    head = (Part(events.loading, events.empties, events.restarts), Part(events.buffers))
    once: tuple[Part, ...]
    if events.first_updates is not None:
        own = events.first_updates
        once = (Part(first[:own]), Part(events.states), Part(first[own:]), Part(step, events.empties_steps))
        return (*head, *once, *([Part(again(events))] if events.empties_steps else ()))
    once = (Part(first), Part(step[:updates]), Part(events.states), Part(step[updates:], events.empties_steps))
    return (*head, *once, Part(again(events)))


def again(events: Events) -> list[int]:
    """The step after a steady one.

    Where that frees as much of the first step's as it leaves behind of its own (outputs that a name holds), the two change places. Else
    micro-batches start over: gradients were dropped.
    """
    step, sizes = events.step, events.sizes
    made = {event for event in step if event > 0}
    left = made - {-event for event in step if event < 0}
    inherited = [-event for event in step if event < 0 and -event not in made]
    leaves = [event for event in step if event in left]
    if not leaves and not inherited:
        return step
    if [sizes[block] for block in inherited] == [sizes[block] for block in leaves]:
        places = dict(zip([*inherited, *leaves], [*leaves, *inherited], strict=True))
        return [places.get(event, event) if event > 0 else -places.get(-event, -event) for event in step]
    return [*(-event for event in leaves), *events.first, *step]
