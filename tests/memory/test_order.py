"""What runs one after the other: where states appear, what a next step finds."""

from __future__ import annotations

from memlint.memory.events import Events
from memlint.memory.linear import product
from memlint.memory.machine import start
from memlint.memory.order import order_of
from memlint.memory.tensor import Storage, Tensor

SIZES = [0, *([1 << 21] * 9)]
STATE, OUTPUT, NEXT_OUTPUT, GRADIENT, WORK = 1, 2, 3, 4, 5


def runs(
    step: list[int], updates: int, first: list[int] | None = None, first_updates: int | None = None, empties: bool = False
) -> list[int]:
    """Everything after loading."""
    events = Events([], [], first or [], [STATE], step, updates, first_updates, 0, 0, SIZES, 0, [], empties_steps=empties)
    return [event for part in order_of(events) for event in part.events]


def test_states_are_made_when_the_gradients_are_there() -> None:
    """torch's `optimizer.step()` calls `_init_group` before `zero_grad` is called; the second step meets the states."""
    step = [WORK, GRADIENT, -WORK, -GRADIENT]
    assert runs(step, updates=3) == [WORK, GRADIENT, -WORK, STATE, -GRADIENT, *step]


def test_outputs_of_the_step_before_go_when_the_next_are_there() -> None:
    """`outputs = model(**batch)` holds the last step's until it is bound again; a third step frees the second's."""
    first, step = [OUTPUT, GRADIENT, -GRADIENT], [NEXT_OUTPUT, -OUTPUT, WORK, -WORK]
    assert runs(step, 3, first, first_updates=2) == [OUTPUT, GRADIENT, STATE, -GRADIENT, *step]
    assert runs(step, 3, first, first_updates=2, empties=True)[-8:] == [*step, OUTPUT, -NEXT_OUTPUT, WORK, -WORK]


def test_gradients_come_with_the_first_micro_batch_of_every_step() -> None:
    """With gradient accumulation the last micro-batch adds to gradients that the first one made; `zero_grad` drops them after the step."""
    first, step = [WORK, GRADIENT, -WORK], [WORK, -WORK, -GRADIENT]
    assert runs(step, updates=2, first=first) == [*first, WORK, -WORK, STATE, -GRADIENT, *first, *step]


def test_gradients_that_are_zeroed_stay() -> None:
    """`zero_grad(set_to_none=False)`: the second step only adds to them."""
    first, step = [WORK, GRADIENT, -WORK], [WORK, -WORK]
    assert runs(step, updates=2, first=first) == [*first, WORK, -WORK, STATE, *step]


def test_autocast_casts_the_last_argument_first() -> None:
    """torch 2.13 traced: `F.linear(x, weight, bias)` of float32 under bfloat16 autocast casts (512), (512, 256), (4, 256), and then makes
    its result, (4, 512)."""
    m = start(batch=1, sequence=4)
    m.autocast = 2
    x, weight, bias = (Tensor(Storage(m.ledger, 4 * size), size, 4) for size in (4 * 256, 512 * 256, 512))
    begin = len(m.ledger.events)
    out = product(m, x, weight, bias, 256, 512)
    assert [m.ledger.sizes[event] for event in m.ledger.events[begin:] if event > 0] == [1024, 262_144, 2048, 4096]
    del out
