"""FSDP and ZeRO-3 at run time: gather a unit's weights around its computation, reduce its gradients when they are there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from memlint.memory.autograd import Sink
from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.tensor import FP32, Parameter, Storage, Tensor

ROOT = -1


@dataclass(slots=True)
class Units:
    """The sharded units of a model on this rank: ROOT (embedding, final norm, head) and one per block."""

    machine: Machine
    setup: Setup
    parameters: dict[int, list[Parameter]]
    gathered: dict[int, list[Storage]] = field(default_factory=dict)
    pending: dict[int, int] = field(default_factory=dict)
    kept_inputs: list[Parameter] = field(default_factory=list)
    """Checkpointed inputs (with their gradients) that FSDP1's hooks hold until backward ends."""

    def gather(self, unit: int) -> None:
        """All-gather a unit: one flat buffer in the compute dtype."""
        if unit in self.gathered or unit not in self.parameters:
            return
        nbytes = sum(p.numel * p.itemsize for p in self.parameters[unit])
        self.gathered[unit] = [Storage(self.machine.ledger, nbytes, "communication")]

    def free(self, unit: int) -> None:
        """Drop the gathered weights of a unit."""
        self.gathered.pop(unit, None)

    def finish(self) -> None:
        """The end of backward: everything gathered is freed, hooks are dropped."""
        self.free(ROOT)
        for inputs in self.kept_inputs:
            self.machine.ledger.enter("release", inputs.layer)
            inputs.grad = None
        while self.kept_inputs:
            inputs = self.kept_inputs.pop()
            self.machine.ledger.enter("release", inputs.layer)
            del inputs
        self.machine.ledger.enter("release")

    def reduced(self, parameter: Parameter) -> None:
        """A gradient is complete: when it is the last of its unit, reduce-scatter and keep this rank's share."""
        unit = self._unit(parameter)
        self.pending[unit] -= 1
        if self.pending[unit]:
            return
        members = [p for p in self.parameters[unit] if p.node is not None]
        self.pending[unit] = len(members)
        self._reduce(members)

    def _unit(self, parameter: Parameter) -> int:
        return parameter.layer if parameter.layer in self.parameters else ROOT

    def _reduce(self, members: list[Parameter]) -> None:
        """Reduce-scatter: an input buffer in the reduce dtype if that differs, and the sharded gradient in the stored dtype."""
        m, setup = self.machine, self.setup
        sharding = setup.sharding
        total = sum(p.numel for p in members)
        reduce = sharding.reduce_itemsize or members[0].itemsize
        buffer = Storage(m.ledger, total * reduce, "communication") if reduce != members[0].itemsize else None
        for parameter in members:
            if setup.accumulates and parameter.grad is not None and parameter.grad.numel != parameter.numel:
                continue
            size = max(parameter.itemsize, setup.stored_itemsize) if parameter.kind != "adapter" else parameter.itemsize
            _share_of(m, parameter, sharding.share(parameter.numel), size)
        del buffer


def gradient_buffers(m: Machine, setup: Setup, trained: list[Parameter]) -> list[Storage]:
    """Buffers of data-parallel reduction that live across steps.

    DDP: buckets as large as all gradients (`reducer.cpp`), which the gradients are views of with `gradient_as_bucket_view`. ZeRO-2: the
    reduce bucket, twice with overlap; gradients beyond it are this rank's share only (`stage_1_and_2.py`).
    """
    sharding = setup.sharding
    if sharding.strategy == "ddp" and sharding.world > 1 and trained:
        if sharding.bucket_view:
            for parameter in trained:
                _on_grad(parameter, lambda p: _share_of(m, p, 0, p.itemsize))
        return [Storage(m.ledger, sum(p.numel * p.itemsize for p in trained), "communication")]
    if sharding.strategy == "megatron":
        held = []
        for parameter in trained:
            m.ledger.enter("states", parameter.layer)
            held.append(Storage(m.ledger, parameter.numel * FP32, "gradients"))
        return held
    if sharding.is_zero and trained:
        if sharding.strategy == "zero2":
            for parameter in trained:
                _on_grad(parameter, lambda p: _share_of(m, p, sharding.share(p.numel), p.itemsize))
        copies = 2 if sharding.overlap else 1
        return [Storage(m.ledger, sharding.reduce_bucket * trained[0].itemsize * copies, "communication")]
    return []


def step_in_backward(m: Machine, trained: list[Parameter]) -> None:
    """Each gradient is used and freed as soon as it is complete (torchtune `optimizer_in_bwd`)."""

    def drop(parameter: Parameter) -> None:
        parameter.grad = None

    for parameter in trained:
        _on_grad(parameter, drop)


def _on_grad(parameter: Parameter, action: Callable[[Parameter], None]) -> None:
    sink = parameter.node
    assert isinstance(sink, Sink)
    sink.on_grad = action


def _share_of(m: Machine, parameter: Parameter, share: int, itemsize: int) -> None:
    """Replace a full gradient by this rank's share of it."""
    before, m.ledger.component = m.ledger.component, "gradients"
    parameter.grad = Tensor(Storage(m.ledger, share * itemsize), share, itemsize)
    m.ledger.component = before


def units_of(m: Machine, setup: Setup, parameters: list[Parameter]) -> Units | None:
    """Group the parameters into units and hook their gradients; None when weights are not sharded."""
    sharding = setup.sharding
    if not sharding.shards_weights:
        return None
    groups: dict[int, list[Parameter]] = defaultdict(list)
    for parameter in parameters:
        groups[parameter.layer if sharding.wrapped else ROOT].append(parameter)
    units = Units(m, setup, dict(groups))
    for unit, members in groups.items():
        trained = [p for p in members if p.node is not None]
        units.pending[unit] = len(trained)
        for parameter in trained:
            _on_grad(parameter, units.reduced)
    return units
