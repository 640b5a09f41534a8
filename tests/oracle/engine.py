"""Backward as PyTorch's engine runs it, in Python.

The C++ engine refuses CUDA tensors where there is no CUDA, and treats fake tensors as subclasses: it would neither accumulate
gradients in place nor let a leaf take its first gradient as it is, which real tensors get (input_buffer.cpp,
accumulate_grad.h). Nodes run by highest sequence number; what a node saved is released when it has run.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.utils.checkpoint
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.autograd.graph import get_gradient_edge
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN = torch.ops.aten
_IN_PLACE = {_ATEN.scatter_add.default: _ATEN.scatter_add_.default, _ATEN.index_put.default: _ATEN.index_put_.default}


class _InPlace(TorchDispatchMode):
    """What is gathered or indexed is added into zeros in place, but for subclasses of tensors (`areAnyTensorSubclassLike` in
    FunctionsManual.cpp), which fake tensors are."""

    nodes = ("GatherBackward0", "IndexBackward0")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _IN_PLACE.get(func, func)(*args, **(kwargs or {}))


class _Saved:
    """A tensor that a node keeps for backward."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        # Detached: a node that keeps its own result would otherwise hold itself, which PyTorch without hooks does not.
        self.tensor: torch.Tensor | None = tensor.detach()


class Engine:
    """Runs `loss.backward()` inside `active()`; releases saved tensors node by node."""

    def __init__(self) -> None:
        self._unpacked: list[_Saved] = []
        self._checkpoints: list[tuple[Any, list[_Saved]]] = []
        """Checkpointed regions under backward, and their inputs."""
        self._depth = 0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Replace the engine (also for the backward that reentrant checkpointing starts within a node)."""
        backward, valid = torch.autograd.backward, torch.autograd._is_checkpoint_valid
        task, inputs = torch._C._current_graph_task_id, torch.utils.checkpoint._CheckpointFrame.get_inputs

        def keeping(frame: Any) -> list[Any]:
            outer, self._unpacked = self._unpacked, []
            given = inputs(frame)
            self._checkpoints.append((frame, self._unpacked))
            self._unpacked = outer
            return given

        torch.utils.checkpoint._CheckpointFrame.get_inputs = keeping
        torch.autograd.backward = self._backward
        torch.autograd._is_checkpoint_valid = lambda: True
        torch._C._current_graph_task_id = lambda: self._depth if self._depth else -1
        try:
            with torch.autograd.graph.saved_tensors_hooks(_Saved, self._unpack):
                yield
        finally:
            torch.autograd.backward, torch.autograd._is_checkpoint_valid = backward, valid
            torch._C._current_graph_task_id = task
            torch.utils.checkpoint._CheckpointFrame.get_inputs = inputs

    def _unpack(self, saved: _Saved) -> torch.Tensor:
        if saved.tensor is None:
            raise RuntimeError("a saved tensor is used after its node has run")
        self._unpacked.append(saved)
        return saved.tensor

    def _backward(self, tensors: Any, grad_tensors: Any = None, *_: Any, **__: Any) -> None:
        roots: Sequence[torch.Tensor] = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
        given = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) else grad_tensors
        self._depth += 1
        with torch.no_grad():
            seeds = list(given) if given else [torch.ones_like(root) for root in roots]
            del given, grad_tensors
            edges = [get_gradient_edge(root) for root in roots]  # a root may be a leaf (reentrant checkpointing of t5)
            _Task(self, [edge.node for edge in edges], [edge.output_nr for edge in edges], seeds).run()
        self._depth -= 1

    def call(self, node: Any, gradients: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients of a node's inputs, one for each of `node.next_functions`.

        They have their shape and dtype before the node lets go of what it was given and of what it saved (`call_function`, then
        `release_variables`).
        """
        outer, self._unpacked = self._unpacked, []
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            result = _call_python(node, gradients)
        else:
            with _InPlace() if node.name() in _InPlace.nodes else nullcontext():
                result = node(*gradients)
            result = [result] if isinstance(result, torch.Tensor) or result is None else list(result)
        for i, (edge, slot) in enumerate(node.next_functions):
            if edge is not None and result[i] is not None:
                result[i] = _validated(result[i], edge._input_metadata[slot])
        gradients.clear()
        for saved in self._unpacked:
            saved.tensor = None
        self._unpacked = outer
        self._end_checkpoints()
        return result

    def _end_checkpoints(self) -> None:
        """The inputs of a region that is recomputed live as long as a node of it still keeps something, whose hooks hold its frame."""
        going, self._checkpoints = self._checkpoints, []
        for frame, inputs in going:
            holders = [reference() for reference in frame.weak_holders]
            if any(holder is not None and any(holder.handles.values()) for holder in holders):
                self._checkpoints.append((frame, inputs))
                continue
            for saved in inputs:
                saved.tensor = None


def _call_python(node: Any, gradients: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """A `torch.autograd.Function`: its results are for all arguments, its edges only for tensors."""
    for i, gradient in enumerate(gradients):
        if gradient is None and getattr(node, "materialize_grads", True):
            meta = node._input_metadata[i]
            gradients[i] = torch.zeros(tuple(meta.shape), dtype=meta.dtype, device="cuda")
    result = node.apply(*gradients)
    wanted = node.needs_input_grad
    result = [result] if isinstance(result, torch.Tensor) or result is None else list(result)
    needed = iter([r for r, need in zip(result, wanted, strict=False) if need])
    return [None if edge is None else next(needed) for edge, _ in node.next_functions]


class _Task:
    def __init__(self, engine: Engine, roots: list[Any], slots: list[int], seeds: list[torch.Tensor]) -> None:
        self.engine = engine
        self.waiting: dict[int, int] = {}
        self.buffers: dict[int, list[torch.Tensor | None]] = {}
        self.ready: list[tuple[float, int, Any]] = []
        self.nodes: dict[int, Any] = {}
        stack = list(roots)
        while stack:
            node = stack.pop()
            if id(node) in self.nodes:
                continue
            self.nodes[id(node)] = node
            for edge, _ in node.next_functions:
                if edge is not None:
                    self.waiting[id(edge)] = self.waiting.get(id(edge), 0) + 1
                    stack.append(edge)
        for node, slot in zip(roots, slots, strict=False):
            self._add(node, slot, seeds.pop(0))
        for node in {id(n): n for n in roots}.values():
            if not self.waiting.get(id(node)):
                self._push(node)

    def _push(self, node: Any) -> None:
        # AccumulateGrad runs as soon as it is ready
        order = float("inf") if hasattr(node, "variable") else node._sequence_nr()
        heapq.heappush(self.ready, (-order, id(node), node))

    def _add(self, node: Any, slot: int, gradient: torch.Tensor) -> None:
        buffer = self.buffers.setdefault(id(node), [None] * max(1, len(node._input_metadata)))
        held = buffer[slot]
        buffer[slot] = None
        # references to `held`: this name and the argument of getrefcount; its storage: the tensor and `untyped_storage()`
        if held is None:
            buffer[slot] = gradient
        elif sys.getrefcount(held) <= 2 and _sole_owner(held):
            buffer[slot] = held.add_(gradient)
        else:
            buffer[slot] = held + gradient

    def _results(self, node: Any) -> list[torch.Tensor | None]:
        """Run the node: the gradients for what it leads to."""
        buffer = self.buffers.pop(id(node), [None])
        if hasattr(node, "variable"):
            _accumulate(node.variable, buffer)
            return []
        return self.engine.call(node, buffer)

    def run(self) -> None:
        while self.ready:
            node = heapq.heappop(self.ready)[2]
            results = self._results(node)
            for i, (edge, slot) in enumerate(node.next_functions):
                gradient, results[i] = results[i], None
                if edge is None:
                    continue
                if gradient is not None:
                    self._add(edge, slot, gradient)
                    del gradient
                self.waiting[id(edge)] -= 1
                if not self.waiting[id(edge)]:
                    self._push(edge)


class _Captured(_Task):
    """Takes the gradients of chosen edges instead of accumulating into leaves; adds out of place, as what is traced has to."""

    def __init__(self, engine: Engine, roots: Sequence[Any], seeds: list[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        self.edges = [get_gradient_edge(t) for t in inputs]
        self.found: list[torch.Tensor | None] = [None] * len(inputs)
        super().__init__(engine, [edge.node for edge in roots], [edge.output_nr for edge in roots], seeds)
        self.leading = {id(edge.node) for edge in self.edges}
        for node in sorted((n for n in self.nodes.values() if not hasattr(n, "variable")), key=lambda n: n._sequence_nr()):
            if any(id(edge) in self.leading for edge, _ in node.next_functions):
                self.leading.add(id(node))

    def _add(self, node: Any, slot: int, gradient: torch.Tensor) -> None:
        buffer = self.buffers.setdefault(id(node), [None] * max(1, len(node._input_metadata)))
        held = buffer[slot]
        buffer[slot] = gradient if held is None else held + gradient

    def _results(self, node: Any) -> list[torch.Tensor | None]:
        buffer = self.buffers.pop(id(node), [None])
        for index, edge in enumerate(self.edges):
            if edge.node is node:
                self.found[index] = buffer[edge.output_nr]
        leads = any(id(edge) in self.leading for edge, _ in node.next_functions)
        if not leads or all(gradient is None for gradient in buffer):
            return [None] * len(node.next_functions)
        return self.engine.call(node, buffer)


def gradients(
    outputs: Any, inputs: Any, grad_outputs: Any = None, allow_unused: bool = True, **_: Any
) -> tuple[torch.Tensor | None, ...]:
    """What `torch.autograd.grad` returns (AOTAutograd traces its backward with it)."""
    roots = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    seeds = list(grad_outputs) if grad_outputs is not None else [torch.ones_like(root) for root in roots]
    with torch.no_grad():
        task = _Captured(Engine(), [get_gradient_edge(root) for root in roots], seeds, inputs)
        task.run()
    return tuple(task.found)


def _sole_owner(tensor: torch.Tensor) -> bool:
    storage = tensor.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata) <= 2 and is_non_overlapping_and_dense_or_false(tensor)


def _validated(gradient: torch.Tensor, metadata: Any) -> torch.Tensor:
    """validate_outputs in engine.cpp: a gradient gets the shape and dtype of what it is the gradient of."""
    if gradient.shape != torch.Size(metadata.shape):
        gradient = gradient.sum_to_size(tuple(metadata.shape))
    if gradient.dtype != metadata.dtype:
        gradient = gradient.to(metadata.dtype)
    return gradient


def _accumulate(variable: torch.Tensor, buffer: list[torch.Tensor | None]) -> None:
    """AccumulateGrad: keep a first gradient that nobody else holds and whose layout fits, else clone it; then add in place."""
    gradient = buffer.pop()
    if gradient is None:
        return
    if variable.grad is not None:
        variable.grad.add_(gradient)
    elif sys.getrefcount(gradient) <= 2 and gradient.stride() == variable.stride():
        variable.grad = gradient.detach()
    else:
        variable.grad = gradient.clone(memory_format=torch.contiguous_format)
