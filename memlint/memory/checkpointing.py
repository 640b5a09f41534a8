"""Running a block: plainly between two marks, or checkpointed (forward without a graph, once more in backward)."""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import compiled
from memlint.memory.autograd import backward
from memlint.memory.families.model import Block
from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.tensor import Anchor, Parameter, Sink, Storage, Tensor
from memlint.memory.units import Units


def plain(m: Machine, units: Units | None, block: Block, x: Tensor, context: Tensor | None, index: int) -> Tensor:
    """Run the block with its graph; the marks tell the ledger (and the sharded units) when backward passes it."""
    x = _mark(m, x, lambda: _leave(m, units, index))
    x = run(m, block, x, context)
    return _mark(m, x, lambda: _enter(m, units, index))


def run(m: Machine, block: Block, x: Tensor, context: Tensor | None) -> Tensor:
    """The block itself; its local variables go when it returns."""
    with compiled.Forward(m, m.compiled != ""):
        x = block(m, x, context)
    m.returned, m.weights = (m.weights if m.names_weights else []), []
    return x


def _mark(m: Machine, x: Tensor, passed: Callable[[], None]) -> Tensor:
    """An operation that costs nothing and calls `passed` when backward goes through it."""

    def rule(g: Tensor) -> tuple[Tensor | None, ...]:
        passed()
        return (g,)

    return m.tape.record(Tensor(x.storage, x.numel, x.itemsize), (x,), rule)


def _enter(m: Machine, units: Units | None, index: int) -> None:
    compiled.leave(m)
    if units is not None:
        units.ask(index)
    m.ledger.enter("backward", index)
    if units is not None:
        units.enter_backward(index)
    if m.compiled:
        compiled.enter(m)


def _leave(m: Machine, units: Units | None, index: int) -> None:
    compiled.leave(m)
    if m.compiled == "blocks":
        compiled.end(m)
    if units is not None:
        units.leave_backward(index)
    m.ledger.enter("backward", max(index - 1, -1))
    if m.compiled == "model":
        compiled.enter(m)


def _stopped(m: Machine, begin: int) -> int:
    """A recomputation ends at the last tensor that backward needs (`_StopRecomputationError`): what follows has not happened.

    Takes it out of the events and returns where the recomputation ends among them.
    """
    events, last = m.ledger.events, m.tape.last_packed
    if not sum(e for e in events[begin:] if abs(e) >= last):  # all of it is gone again
        events[begin:] = [e for e in events[begin:] if abs(e) < last]
    return len(events)


def _delayed(m: Machine, begin: int, end: int) -> None:
    """The recomputation (events from `begin` to `end`) starts when the first tensor is needed: nodes that kept none run before it."""
    events, first = m.ledger.events, m.tape.first_unpacked
    if first is None or first == end:
        return
    made = set(events[begin:end])
    if not any(-e in made for e in events[end:first]):
        events[begin:first] = events[end:first] + events[begin:end]


def _detached(setup: Setup, x: Tensor, index: int) -> Tensor:
    """Another input of a block, cut off from its graph so that the recomputation's backward stops there."""
    if x.node is None:
        return x
    leaf = Parameter(x.storage, x.numel, x.itemsize, "inputs", "input" if setup.reentrant else "recomputed", index)
    leaf.node = Sink(leaf)
    return leaf


def _taken(x: Tensor) -> Tensor | None:
    """The gradient that reached such an input."""
    if not isinstance(x, Parameter) or x.kind not in ("input", "recomputed"):
        return None
    x.node = None
    grad, x.grad = x.grad, None
    return grad


def checkpointed_alone(setup: Setup, parameters: list[Parameter]) -> bool:
    """Blocks with these parameters are run again even where their input needs no gradient, for their own weights' sake."""
    return setup.checkpointing == "full" and not setup.reentrant and any(parameter.node is not None for parameter in parameters)


def checkpointed(
    m: Machine, setup: Setup, units: Units | None, block: Block, x: Tensor, context: Tensor | None, index: int
) -> Tensor:
    """`torch.utils.checkpoint` around the block: its input is kept (in host memory with `checkpoint_offload`), nothing else.

    Reentrant and not, the same tensors are held at the peak. FSDP1 with a frozen unit and reentrant checkpointing around it keeps
    every block's input and its gradient until backward ends: the unit's reshard hook is a multi-gradient hook on these inputs, which
    holds their gradient accumulators (torch 2.13 `distributed/fsdp/_runtime_utils.py`, `_register_post_backward_reshard_only_hook`).
    """
    tape = m.tape
    enabled, tape.enabled = tape.enabled, False
    m.has_graph = not setup.reentrant
    m.kept, m.products = ([], 0) if setup.checkpointing == "selective_op" else (None, 0)
    beside, shared = m.beside, len(m.shared)
    others = [*([context] if context is not None else []), *m.shared, *([beside] if beside is not None else [])]
    two = beside is not None
    del beside
    out = run(m, block, x, context)
    returned = [(t.numel, t.itemsize) for t in m.returned] if setup.reentrant else []
    kept, m.kept = m.kept or [], None
    if setup.compiled and m.products % 2 and kept:
        # The block's last product only feeds an addition: compiled code keeps what backward reads, nothing else.
        kept.pop()
    tape.enabled, m.has_graph = enabled, True
    if out.storage is x.storage:
        out = Tensor(out.storage, out.numel, out.itemsize)
    numel, itemsize = x.numel, x.itemsize
    held: list[Storage] = [] if setup.checkpoint_offload else [x.storage]
    has_context = context is not None
    needs_grad = not isinstance(x.node, Anchor)
    inputs_of = (x, *others)
    masks = [m.mask]
    if setup.reentrant and m.mask is not None:
        m.arguments.append(m.mask)
    keeps = units is not None and index in units.frozen and setup.reentrant and not setup.stack.checkpoints_inside

    def rule(grads: list[Tensor | None]) -> tuple[Tensor | None, ...]:
        grads += [m.new(*size) for size in returned]  # nothing has used them: zeros (`materialize_grads`)
        gradients_of_results = grads[:] if setup.reentrant else None  # an argument of `CheckpointFunction.backward`
        _enter(m, units, index)
        storage = held.pop() if held else Storage(m.ledger, numel * itemsize)
        inputs = Parameter(storage, numel, itemsize, "inputs", "input" if setup.reentrant else "recomputed", index)
        del storage
        inputs.node = Sink(inputs) if needs_grad else None
        tape.enabled = True
        casts, m.casts = m.casts, {}
        held_before = len(m.held)
        m.mask = masks.pop()
        detached = [_detached(setup, other, index) for other in others]
        others.clear()
        m.shared = detached[has_context : has_context + shared]
        m.beside = detached[-1] if two else None
        lazy = not setup.reentrant and not setup.compiled
        begin, segment, tape.recomputes = len(m.ledger.events), len(m.ledger.segments), lazy
        result = run(m, block, inputs, detached[0] if has_context else None)
        tape.recomputes = False
        if not setup.reentrant:
            # Its results are not kept.
            m.returned = []
            result = Tensor(inputs.storage, result.numel, result.itemsize, result.node, result.index)
        if two and m.beside is not None:
            second = m.beside
            if not setup.reentrant:
                second = Tensor(inputs.storage, second.numel, second.itemsize, second.node, second.index)
            result = _joined(m, result, second, grads)
            del second
        if returned and m.returned:
            result = _joined(m, result, m.returned[0], grads)
        results = m.shared if setup.reentrant else []
        m.casts, m.mask, m.shared, m.beside = casts, None, [], None
        tape.enabled = False
        end = _stopped(m, begin) if lazy else begin
        tape.first_unpacked = None if lazy else 0
        backward(tape, result, grads)
        if lazy and len(m.ledger.segments) == segment:
            _delayed(m, begin, end)
        del result, results, gradients_of_results
        m.returned = []
        del m.held[held_before:]
        inputs.node = None
        grad = inputs.grad
        if keeps and units is not None:
            units.kept_inputs.append(inputs)
        else:
            inputs.grad = None  # its accumulator may outlive the graph
        _leave(m, units, index)
        return (grad, *(_taken(other) for other in detached))

    saved = (*kept, None if setup.checkpoint_offload else x.storage)
    del kept
    if two and m.beside is not None:
        tape.record_many((out, m.beside), inputs_of, rule, saved, kernel=True)
    else:
        tape.record(out, inputs_of, rule, saved, kernel=True)
    if out.node is not None:
        out.node.consumes = True
    return out


def _joined(m: Machine, first: Tensor, second: Tensor, grads: list[Tensor | None]) -> Tensor:
    """A root for both results of a block; it hands out their gradients, which it takes from `grads`. The last block's second result may
    have none."""
    if grads[1] is None:
        grads.pop()
        return first
    taken = grads[:]
    grads[:] = [None]
    return m.tape.record(
        Tensor(first.storage, first.numel, first.itemsize), (first, second), lambda g: (taken.pop(0), taken.pop(0))
    )
