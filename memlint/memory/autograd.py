"""A tiny eager autograd: nodes save storages in forward, and run in PyTorch's order in backward.

Order and ownership follow torch 2.13: `torch/csrc/autograd/engine.cpp` (highest sequence number first, a node's saved tensors
released right after it ran), `input_buffer.cpp` (a second gradient is added in place when the first has no other owner) and
`functions/accumulate_grad.h` (a leaf steals its first gradient when nobody else holds it, else it clones it).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from sys import getrefcount

from memlint.memory.tensor import Ledger, Node, Parameter, Rule, Sink, Storage, Tensor


class Operation:
    """An operation of compiled code. Blocks are their idents; `end` is the number of events when it was done."""

    __slots__ = ("end", "fused", "inputs", "kernel", "outs", "saved")

    def __init__(
        self,
        outs: tuple[int, ...],
        inputs: tuple[int, ...],
        kernel: bool,
        end: int,
        saved: tuple[int, ...] = (),
        fused: Sequence[int] = (),
    ) -> None:
        self.outs = outs
        self.inputs = inputs
        self.kernel = kernel
        """It is no element-wise operation, but a kernel of its own."""
        self.end = end
        self.saved = saved
        """What it reads in backward that forward kept for it."""
        self.fused = fused
        """Blocks that eager code would have made in the course of it."""


class Traced:
    """An operation of compiled forward code, with what holds its blocks."""

    __slots__ = ("end", "inputs", "kernel", "node", "outs", "parameters", "saved")

    def __init__(
        self, out: Tensor, inputs: tuple[Tensor | None, ...], saved: tuple[Storage | None, ...], kernel: bool, end: int
    ) -> None:
        self.outs: tuple[Storage, ...] = (out.storage,)
        self.inputs = tuple(t.storage for t in inputs if t is not None)
        self.parameters = [t.storage.ident for t in inputs if isinstance(t, Parameter) and t.kind not in ("input", "recomputed")]
        self.saved = tuple(s for s in saved if s is not None)
        self.kernel = kernel
        self.end = end
        self.node: Node | None = None

    def operation(self) -> Operation:
        """Without what holds the blocks."""
        return Operation(tuple(s.ident for s in self.outs), tuple(s.ident for s in self.inputs), self.kernel, self.end)


class Tape:
    """Where forward code records: the ledger, the next sequence number, and whether gradients are on."""

    __slots__ = (
        "casts",
        "enabled",
        "first_unpacked",
        "last_packed",
        "ledger",
        "recomputes",
        "replayed",
        "replays_from",
        "returned",
        "running",
        "seq",
        "traced",
    )

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.seq = 0
        self.enabled = True
        self.recomputes = False
        """A block of non-reentrant checkpointing is being recomputed."""
        self.last_packed = 0
        """What blocks from this ident on hold was made after the last tensor that a node of the recomputation keeps."""
        self.first_unpacked: int | None = 0
        """The first event of the first node in backward that kept something; None while that node is looked for."""
        self.traced: list[Traced] | None = None
        """Compiled forward code is being run."""
        self.casts: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        """Its casts with what they are made of, by the latter's id and the dtype: equal ones are one (`fx_graph_cse`)."""
        self.replayed: list[Operation] | None = None
        """Compiled backward code is being run, since the event `replays_from`."""
        self.replays_from = 0
        self.returned: list[tuple[int, Tensor]] = []
        """Gradients that it has made for parameters that have some already, by layer: a graph returns all of its results before the
        first one is added (`_functorch/_aot_autograd/runtime_wrappers.py`, `CompiledFunction.backward`)."""
        self.running: Node | None = None
        """The node that runs in backward."""

    def new(self, numel: int, itemsize: int) -> Tensor:
        """Allocate a fresh tensor outside the graph."""
        return Tensor(Storage(self.ledger, numel * itemsize), numel, itemsize)

    def record(
        self,
        out: Tensor,
        inputs: tuple[Tensor | None, ...],
        rule: Rule,
        saved: tuple[Storage | None, ...] = (),
        kernel: bool = False,
    ) -> Tensor:
        """Attach `out` to the graph if gradients are on and an input needs one; else return it as it is.

        `kernel`: torch.compile does not fuse the operation with others.
        """
        if self.traced is not None:
            self.traced.append(Traced(out, inputs, saved, kernel, len(self.ledger.events)))
        if not self.enabled:
            return out
        nexts = tuple((t.node, t.index) if t is not None and t.node is not None else None for t in inputs)
        if not any(nexts):
            return out
        self.seq += 1
        out.node = Node(self.seq, rule, nexts, saved)
        out.node.kernel = kernel
        out.index = 0
        if self.traced is not None:
            self.traced[-1].node = out.node
        if saved and self.recomputes:
            out.node.unpacks = True
            ident = out.storage.ident
            made = any(s is not None and s.ident >= ident for s in saved) or any(
                t is not None and t.storage is out.storage for t in inputs
            )
            self.last_packed = len(self.ledger.sizes) if made else ident  # inputs are packed before the kernel runs
        return out

    def unpacked(self) -> None:
        """The running node has read what it kept: hooks have handed it out, and nothing else holds it (`saved_variable.cpp`, `unpack`)."""
        if self.running is not None and self.running.unpacks:
            self.running.saved = None

    def ran(self, out: Tensor | None, read: Tensor, saved: int) -> None:
        """A backward rule of several kernels has run one of them, which read a gradient and the block of this ident."""
        if self.replayed is not None and out is not None:
            end = len(self.ledger.events)
            self.replayed.append(Operation((out.storage.ident,), (read.storage.ident,), True, end, (saved,)))

    def leaf(self, x: Tensor, kind: type[Node] = Node, holds: bool = True) -> Tensor:
        """Make `x` a leaf that needs a gradient which nobody collects; its accumulator `holds` it as long as the graph lives."""
        if self.enabled:
            self.seq += 1
            x.node = kind(self.seq, lambda g: (), (), (x.storage,) if holds else ())
        return x

    def record_many(
        self,
        outs: tuple[Tensor, ...],
        inputs: tuple[Tensor | None, ...],
        rule: Rule,
        saved: tuple[Storage | None, ...] = (),
        kernel: bool = False,
    ) -> tuple[Tensor, ...]:
        """`record` for an operation with several outputs."""
        self.record(outs[0], inputs, rule, saved, kernel)
        if self.traced is not None:
            self.traced[-1].outs = tuple(out.storage for out in outs)
        node = outs[0].node
        if self.enabled and node is not None:
            node.outputs = len(outs)
            for index, out in enumerate(outs):
                out.node, out.index = node, index
        return outs


class View(Tensor):
    """A gradient that is a view: what it is a view of lives as long as it does, so nothing is added to it in place."""

    __slots__ = ("base",)

    def __init__(self, base: Tensor) -> None:
        super().__init__(base.storage, base.numel, base.itemsize)
        self.base = base


def kept_for(x: Tensor) -> list[Storage]:
    """What the nodes below `x` keep."""
    nodes = [x.node] if x.node is not None else []
    seen, found = set(nodes), []
    while nodes:
        node = nodes.pop()
        found += [storage for storage in node.saved or () if storage is not None]
        for edge in node.nexts:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                nodes.append(edge[0])
    return found


def alias(x: Tensor) -> Tensor:
    """A second tensor over the same storage (a view, or a shared gradient): its storage then has another owner."""
    if type(x) is View:
        return View(x.base)
    return Tensor(x.storage, x.numel, x.itemsize, x.node, x.index)


def add_up(tape: Tape, old: Tensor, new: Tensor) -> Tensor:
    """`old + new`: in place when no other tensor owns the storage of `old`, else a fresh tensor."""
    if tape.replayed is not None:
        total = tape.new(old.numel, max(old.itemsize, new.itemsize))
        tape.replayed.append(_added(tape, total, old, new))
        return total
    if getrefcount(old.storage) <= 2:
        return old
    return tape.new(old.numel, max(old.itemsize, new.itemsize))


def _added(tape: Tape, out: Tensor, *inputs: Tensor) -> Operation:
    """An element-wise operation of compiled backward code."""
    return Operation((out.storage.ident,), tuple(x.storage.ident for x in inputs), False, len(tape.ledger.events))


def accumulate(tape: Tape, parameter: Parameter, grad: Tensor) -> None:
    """What `AccumulateGrad` does; the gradient lives in the ledger under its own component."""
    ledger = tape.ledger
    if parameter.grad is not None and parameter.grad.numel == grad.numel:  # added in place
        if tape.replayed is not None:
            ledger.components[grad.storage.ident] = "gradients"
            tape.returned.append((parameter.layer, grad))
        return
    component = "activations" if parameter.kind in ("input", "recomputed") else "gradients"
    if getrefcount(grad.storage) <= (3 if type(grad) is View else 2) and grad.itemsize == parameter.itemsize:
        ledger.components[grad.storage.ident] = component
        parameter.grad = Tensor(grad.storage, grad.numel, grad.itemsize)
    else:
        before, ledger.component = ledger.component, component
        parameter.grad = tape.new(parameter.numel, parameter.itemsize)
        ledger.component = before
        if tape.replayed is not None:
            tape.replayed.append(_added(tape, parameter.grad, grad))


def backward(tape: Tape, root: Tensor, grads: list[Tensor | None]) -> None:
    """Run the graph below `root`, whose gradient is taken out of `grads`. Gradient mode is off inside (create_graph=False)."""
    if root.node is None:
        return
    was_enabled, tape.enabled = tape.enabled, False
    waiting = _dependencies(root.node)
    buffers: dict[Node, list[Tensor | None]] = {root.node: [None] * root.node.outputs}
    buffers[root.node][root.index] = grads.pop()
    ready: list[tuple[int, int, Node]] = [(-root.node.seq, 0, root.node)]
    order = 0
    del root
    while ready:
        node = heapq.heappop(ready)[2]
        incoming = buffers.pop(node)
        if isinstance(node, Sink):
            value = incoming.pop()
            if value is not None:
                accumulate(tape, node.parameter, value)
                del value
                if node.on_grad is not None:
                    node.on_grad(node.parameter)
            continue
        if tape.first_unpacked is None and node.saved:
            tape.first_unpacked = len(tape.ledger.events)
        rule = node.rule
        assert rule is not None
        tape.running = node
        replayed, made = tape.replayed, len(tape.ledger.sizes)
        given: tuple[int, ...] = ()
        before = len(replayed or ())
        if replayed is not None:
            given = tuple(g.storage.ident for g in incoming if g is not None)
        results = list(rule(incoming) if node.consumes else rule(*incoming))
        del incoming
        if replayed is not None and tape.replayed is replayed and len(replayed) == before:
            outs = tuple(g.storage.ident for g in results if g is not None)
            saved = tuple(s.ident for s in node.saved or () if s is not None)
            own = [] if node.kernel else [ident for ident in range(made, len(tape.ledger.sizes)) if ident not in outs]
            replayed.append(Operation(outs, given, node.kernel, len(tape.ledger.events), saved, own))
        node.rule = rule = None
        node.saved = None
        for position, edge in enumerate(node.nexts):
            if edge is None:
                continue
            target, index = edge
            value, results[position] = results[position], None
            slots = buffers.get(target)
            if slots is None:
                slots = buffers[target] = [None] * target.outputs
            if value is not None:
                old = slots[index]
                slots[index] = None
                slots[index] = value if old is None else add_up(tape, old, value)
                del old
            value = None
            waiting[target] -= 1
            if not waiting[target]:
                order += 1
                heapq.heappush(ready, (-target.seq, order, target))
        del results
    tape.enabled, tape.running = was_enabled, None


def _dependencies(root: Node) -> dict[Node, int]:
    """How many edges lead to each node below `root`."""
    counts: dict[Node, int] = {root: 0}
    stack = [root]
    while stack:
        for edge in stack.pop().nexts:
            if edge is None:
                continue
            target = edge[0]
            if target in counts:
                counts[target] += 1
            else:
                counts[target] = 1
                stack.append(target)
    return counts
