"""One training step as a memory program: run the model's pages on a machine and record every allocation and free.

The phases follow the loop of the frameworks: load, forward, loss, backward, optimizer_step. Only a few layers are simulated; the
middle ones are repeated afterwards (`memlint.memory.timeline`), since their events are alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memlint.memory import attention, loss, optimizer
from memlint.memory.autograd import Node, Tape, backward
from memlint.memory.build import Builder
from memlint.memory.families import page_of
from memlint.memory.families.model import Block, Model
from memlint.memory.machine import Machine, start
from memlint.memory.setup import Setup
from memlint.memory.tensor import BYTE, HALF, Ledger, Parameter, Storage, Tensor
from memlint.models.architecture import Architecture


@dataclass(slots=True)
class Program:
    """The recorded events of `load` and one steady step, for `layers` simulated layers."""

    ledger: Ledger
    layers: int
    parameters: list[Parameter]
    keep: list[object] = field(default_factory=list)
    """What is alive at the end: held so that its frees are not recorded."""


def record(setup: Setup, architecture: Architecture, layers: int) -> Program:
    """Simulate loading and one steady step with `layers` layers."""
    m = start(setup.batch, setup.sequence)
    m.attention = setup.attention
    m.autocast = setup.autocast
    m.kernels = setup.kernels
    m.math_sdpa = setup.math_sdpa
    m.input_grads = bool(setup.adapter) and setup.checkpointing != "none"
    ledger = m.ledger
    ledger.enter("load")
    builder = Builder(m, setup, architecture.model_type)
    model = page_of(architecture.model_type)(builder, architecture, layers)
    trained = [p for p in builder.parameters if p.node is not None]
    states = optimizer.states(m, setup, trained)
    ledger.enter("states")
    workspaces = [Storage(ledger, setup.workspace, "workspace") for _ in range(2)]
    step(m, setup, architecture, model, trained)
    keep: list[object] = [builder, model, states, workspaces, m]
    return Program(ledger, layers, builder.parameters, keep)


def step(m: Machine, setup: Setup, architecture: Architecture, model: Model, trained: list[Parameter]) -> None:
    """Forward, loss, backward, optimizer step, gradients dropped."""
    ledger = m.ledger
    ledger.enter("forward")
    labels = Storage(ledger, m.tokens * 8)
    ids = Storage(ledger, m.tokens * 8)
    if setup.padding_mask:
        m.mask = attention.make_mask(m, BYTE if setup.stack.transformers >= (5, 0) else setup.weight_itemsize)
    hidden = forward(m, setup, model)
    m.mask = None
    ledger.component = "logits"
    value = loss.compute(m, setup, model, hidden)
    del hidden
    m.end_autocast()
    ledger.component = "activations"
    ledger.enter("backward")
    root = value.pop(0)
    gradient = m.new(1, 4)
    backward(m.tape, root, gradient)
    del root, gradient
    value.clear()
    ledger.component = "workspace"
    optimizer.step(m, setup, trained)
    for parameter in trained:
        ledger.enter("optimizer_step", parameter.layer)
        parameter.grad = None
    ledger.component = "activations"
    ledger.enter("optimizer_step")
    del labels, ids


def forward(m: Machine, setup: Setup, model: Model) -> Tensor:
    """Every stage: embedding, blocks (checkpointed where the setup says), final normalisation."""
    context: Tensor | None = None
    x: Tensor | None = None
    index = 0
    for stage in model.stages:
        m.ledger.enter("forward")
        x = stage.embed(m, context)
        for block in stage.blocks:
            m.ledger.enter("forward", index)
            if setup.checkpointing == "full" and index % setup.checkpoint_every == 0:
                x = checkpoint(m, setup, block, x, context, index)
            else:
                x = mark(m, x, index)
                x = block(m, x, context)
                x = mark_end(m, x, index)
            index += 1
        m.ledger.enter("forward")
        x = stage.finish(m, x)
        context = x
    assert x is not None
    return x


def mark(m: Machine, x: Tensor, index: int) -> Tensor:
    """Backward leaves layer `index` here: the segment after it belongs to the layer below."""
    ledger = m.ledger

    def rule(g: Tensor) -> tuple[Tensor | None, ...]:
        ledger.enter("backward", index - 1 if index else -1)
        return (g,)

    return m.tape.record(Tensor(x.storage, x.numel, x.itemsize), (x,), rule)


def mark_end(m: Machine, x: Tensor, index: int) -> Tensor:
    """Backward enters layer `index` here."""
    ledger = m.ledger

    def rule(g: Tensor) -> tuple[Tensor | None, ...]:
        ledger.enter("backward", index)
        return (g,)

    return m.tape.record(Tensor(x.storage, x.numel, x.itemsize), (x,), rule)


def checkpoint(m: Machine, setup: Setup, block: Block, x: Tensor, context: Tensor | None, index: int) -> Tensor:
    """`torch.utils.checkpoint`: forward without a graph, the input kept, the block run again in backward.

    Both variants (reentrant or not) hold the same tensors at the peak; with `checkpoint_offload` the input waits in host memory.
    """
    tape = m.tape
    enabled, tape.enabled = tape.enabled, False
    out = block(m, x, context)
    tape.enabled = enabled
    if out.storage is x.storage:
        out = Tensor(out.storage, out.numel, out.itemsize)
    numel, itemsize = x.numel, x.itemsize
    held: list[Storage] = [] if setup.checkpoint_offload else [x.storage]
    context_held = [] if context is None else [context]

    def rule(g: Tensor) -> tuple[Tensor | None, ...]:
        m.ledger.enter("backward", index)
        storage = held.pop() if held else Storage(m.ledger, numel * itemsize)
        inputs = Parameter(storage, numel, itemsize, "inputs", "input", index)
        del storage
        inputs.node = _input_sink(inputs)
        tape.enabled = True
        autocast, m.casts = m.casts, {}
        result = block(m, inputs, context_held[0] if context_held else None)
        m.casts = autocast
        tape.enabled = False
        backward(tape, result, g)
        del result
        inputs.node = None
        grad = inputs.grad
        context_held.clear()
        m.ledger.enter("backward", index - 1 if index else -1)
        return (grad,)

    saved = (None,) if setup.checkpoint_offload else (x.storage,)
    return tape.record(out, (x,), rule, saved)


def _input_sink(parameter: Parameter) -> Node:
    from memlint.memory.autograd import Sink

    return Sink(parameter)


def saved_for_backward(tape: Tape, root: Tensor, parameters: list[Parameter]) -> int:
    """Bytes that the graph keeps for backward, parameters themselves not counted."""
    from memlint.memory.autograd import saved_storages

    own = {p.storage.ident for p in parameters}
    return sum(s.nbytes for ident, s in saved_storages(root).items() if ident not in own)


__all__ = ["HALF", "Program", "forward", "record", "saved_for_backward", "step"]
