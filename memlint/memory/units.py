"""Sharded weights at run time: gather a unit around its computation, reduce its gradients when they are there.

A unit is what is gathered at once: ROOT (embedding, final norm, head, unless the latter two are HEAD) and one per block. Read in
torch 2.1, 2.4 and 2.13 `distributed/fsdp/_runtime_utils.py` and `_flat_param.py` (FSDP1), torch 2.13
`distributed/fsdp/_fully_shard/_fsdp_param_group.py` and `_fsdp_collectives.py` (FSDP2), DeepSpeed 0.15, 0.19 `runtime/zero/stage3.py`,
`partition_parameters.py` and `partitioned_param_coordinator.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.sharding import Sharding
from memlint.memory.tensor import COMPUTE, GATHER, REDUCE, Grads, Parameter, Sink, Storage, Tensor

ROOT, HEAD = -1, -2

NORM_BUFFER = 250_000_000


class Units:
    """The sharded units of a model on this rank."""

    def __init__(self, machine: Machine, setup: Setup, parameters: dict[int, list[Parameter]]) -> None:
        self.machine = machine
        self.setup = setup
        self.parameters = parameters
        # DeepSpeed 0.15, 0.19 `stage3.py`, `parameter_offload.py`: without `overlap_comm` all is on the default stream.
        one = setup.sharding.strategy == "zero3" and not setup.sharding.overlap
        self.gathers_on, self.reduces_on = (COMPUTE, COMPUTE) if one else (GATHER, REDUCE)
        self.gathered: dict[int, Storage] = {}
        self.incoming: dict[int, Storage] = {}
        """Blocks whose all-gather was started in backward: its result."""
        self.result: list[Storage] = []
        """FSDP2 in forward: the last all-gather's result, which lives until the next unit's weights arrive."""
        self.pending: dict[int, int] = {}
        self.reducing: list[Storage] = []
        """FSDP2: the last reduce-scatter's input, which lives until the next unit's."""
        self.unsharded: dict[int, Storage] = {}
        """Whole gradients of a unit that earlier micro-batches left behind where they are not synchronised."""
        self.first_leaves: dict[int, Parameter | None] = {}  # of each unit: the trained leaf whose backward comes last
        self.external: list[Storage] = []
        """ZeRO-3: the head's weights where a fused loss reads them outside of the head's own forward."""
        self.trailing: list[Storage] = []
        """ZeRO-3: blocks before the last that are still gathered when backward begins."""
        self.frozen: frozenset[int] = frozenset()
        """Units that FSDP1 hooks on their inputs, since nothing in them is trained."""
        self.kept_inputs: list[Parameter] = []
        """Checkpointed inputs (with their gradients) that FSDP1's hooks hold until backward ends."""

    def enter_forward(self, unit: int) -> None:
        """A unit's forward begins: its weights are gathered."""
        if unit in self.gathered or unit not in self.parameters:
            return
        if unit == ROOT and not self.external:
            self._fetch_external()
        arrived = self._gather(unit)
        if self.setup.sharding.copies_out:
            self.result.clear()
            self.gathered[unit] = self._weights(unit)
            self.result.append(arrived)
        else:
            self.gathered[unit] = arrived

    def _fetch_external(self) -> None:
        """A weight that is read while another module's forward runs becomes that module's external parameter: here the whole model's,
        which has it fetched before its forward and released after its backward (DeepSpeed 0.19 `parameter_offload.py`,
        `ZeROOrderedDict`)."""
        if self.setup.sharding.strategy != "zero3" or self.setup.logits != "fused":
            return
        tables = [p for p in self.parameters[ROOT] if p.kind == "embedding"]
        heads = tables if self.setup.tied else [p for p in self.parameters[ROOT] if p.kind == "linear"]
        self.external = [Storage(self.machine.ledger, p.numel * p.itemsize, "communication", self.gathers_on) for p in heads[-1:]]

    def past_embedding(self) -> None:
        """The embedding's weights go before the first block where they are a unit by themselves: in ZeRO-3, which fetches and releases
        module by module, and beside a HEAD."""
        if self.setup.sharding.strategy == "zero3" or HEAD in self.parameters:
            self.gathered.pop(ROOT, None)

    def enter_head(self) -> None:
        """Final norm and head: fetched now, and kept for their backward, which follows at once."""
        if self.setup.sharding.strategy == "zero3":
            self.enter_forward(ROOT)
        self.enter_forward(HEAD)

    def leave_forward(self, unit: int, last: bool) -> None:
        """A unit's forward is over: its weights go, where they are resharded (the root's stay)."""
        sharding = self.setup.sharding
        if sharding.reshards and not (last and sharding.keeps_last):
            self.gathered.pop(unit, None)

    def end_forward(self) -> None:
        """The root's forward is over. ZeRO-3 has kept the last blocks, which backward reads within its reuse distance
        (`partitioned_param_coordinator.py`, `__params_to_release`: the trace's elements up to the next use)."""
        self.result.clear()
        sharding = self.setup.sharding
        if sharding.reshards_root:
            self.gathered.pop(ROOT, None)
        if sharding.strategy != "zero3" or not self.parameters:
            return
        block = self.parameters.get(max(self.parameters))
        assert block is not None
        passes = 1 if self.setup.checkpointing == "none" else 2
        elements = sum(p.numel for p in block)
        kept = min(self.setup.layers, sharding.reuse // max(1, passes * elements)) * elements
        self.trailing.append(Storage(self.machine.ledger, kept * block[0].itemsize, "communication"))

    def ask(self, unit: int) -> None:
        """Start a block's all-gather (an embedding's that is a unit by itself), unless it was started ahead of time or its weights are
        there."""
        if (
            (unit >= 0 or HEAD in self.parameters)
            and unit in self.parameters
            and unit not in self.gathered
            and unit not in self.incoming
        ):
            self.incoming[unit] = self._gather(unit)

    def left(self, result: Tensor) -> Tensor:
        """The model's result; when its gradient arrives, a root that was freed is gathered again."""

        def rule(g: Tensor) -> Grads:
            arrived = self._gather(ROOT)
            self.gathered[ROOT] = self._weights(ROOT)
            del arrived
            return (g,)

        return self.machine.tape.record(Tensor(result.storage, result.numel, result.itemsize), (result,), rule)

    def enter_backward(self, unit: int) -> None:
        """A block's backward begins: the head's is over, the block's weights have arrived, the next block's are asked for."""
        self.gathered.pop(ROOT if self.setup.sharding.strategy == "zero3" else HEAD, None)
        if unit in self.incoming:
            arrived = self.incoming.pop(unit)
            self.gathered[unit] = self._weights(unit) if self.setup.sharding.copies_out else arrived
            del arrived
        for ahead in range(unit - 1, unit - 1 - self.setup.sharding.ahead, -1):
            self.ask(ahead)

    def leave_backward(self, unit: int) -> None:
        """A unit's backward is over."""
        self.trailing.clear()
        self.gathered.pop(unit, None)
        if unit == 0 and ROOT in self.incoming:
            arrived = self.incoming.pop(ROOT)
            self.gathered[ROOT] = self._weights(ROOT)
            del arrived

    def _gather(self, unit: int) -> Storage:
        """The result of an all-gather, in the dtype the weights are used in; ZeRO++ qwZ gathers int8 with a float32 scale for each
        2,048 or more (`CUDAQuantizer`, `target_group_size` 8,000)."""
        nbytes = self._bytes(unit) // (2 if self.setup.sharding.gathers_int8 else 1)
        return Storage(self.machine.ledger, nbytes, "communication", self.gathers_on)

    def _weights(self, unit: int) -> Storage:
        """The unit's weights where they are copied out of the all-gather's result, one tensor each."""
        stream = self.gathers_on if self.setup.sharding.strategy == "zero3" else COMPUTE
        return Storage(self.machine.ledger, self._bytes(unit), "communication", stream)

    def _bytes(self, unit: int) -> int:
        members = self.parameters[unit]
        if unit == ROOT and self.setup.sharding.strategy == "zero3":
            # Embedding or head: whichever is at work; the larger half where they differ.
            tables = [p for p in members if p.kind == "embedding"]
            rest = [p for p in members if p.kind != "embedding"] if len(tables) < len(members) else members
            return max(sum(p.numel * p.itemsize for p in half) for half in (tables, rest))
        return sum(p.numel * p.itemsize for p in members)

    def finish(self) -> None:
        """The end of backward: everything gathered is freed, hooks are dropped, what was accumulated whole is reduced."""
        ledger = self.machine.ledger
        self.gathered.pop(ROOT, None)
        self.external.clear()
        self.reducing.clear()
        for inputs in self.kept_inputs:
            ledger.enter("release", inputs.layer)
            inputs.grad = None
        while self.kept_inputs:
            inputs = self.kept_inputs.pop()
            ledger.enter("release", inputs.layer)
            del inputs
        for unit in sorted(self.unsharded, reverse=True):
            ledger.enter("release", max(unit, ROOT))
            whole = self.unsharded.pop(unit)
            self._share([p for p in self.parameters[unit] if p.node is not None])
            del whole
        ledger.enter("release")

    def accumulated(self) -> None:
        """Gradients that earlier micro-batches left: whole ones where the loop does not synchronise each, else shares."""
        ledger, sharding = self.machine.ledger, self.setup.sharding
        for unit, members in self.parameters.items():
            trained = [p for p in members if p.node is not None]
            if not trained:
                continue
            ledger.enter("accumulated", max(unit, ROOT))
            if sharding.syncs_each:
                self._share(trained)
            else:
                size = sharding.reduce_itemsize if sharding.copies_out else 0
                nbytes = self._flat(unit, trained) * (size or trained[0].itemsize)
                self.unsharded[unit] = Storage(ledger, nbytes, "gradients")

    def reduced(self, parameter: Parameter) -> None:
        """A gradient is complete: when it is the last of its unit (a trained leaf is one by itself), reduce-scatter it."""
        unit = unit_of(parameter, self.setup)
        if self.setup.sharding.strategy == "zero3":
            self._partition(parameter, unit)
            return
        if self.setup.sharding.leaves_apart and parameter.kind == "adapter":
            self._reduce(unit, [parameter])
            if self.setup.sharding.asks_after_leaves and parameter is self.first_leaves[unit]:
                self.ask(unit - 1)
            return
        self.pending[unit] -= 1
        if self.pending[unit]:
            return
        members = self._grouped(unit)
        self.pending[unit] = len(members)
        self._reduce(unit, members)

    def _grouped(self, unit: int) -> list[Parameter]:
        """The trained parameters of a unit that are reduced together."""
        apart = self.setup.sharding.leaves_apart
        return [p for p in self.parameters[unit] if p.node is not None and not (apart and p.kind == "adapter")]

    def _flat(self, unit: int, members: list[Parameter]) -> int:
        """Elements of the gradient of these parameters: FSDP1's flat parameter has one as a whole, frozen weights included."""
        if self.setup.sharding.strategy == "fsdp1" and not self.setup.sharding.leaves_apart:
            members = self.parameters[unit]
        return sum(p.numel for p in members)

    def _reduce(self, unit: int, members: list[Parameter]) -> None:
        """Make the unit's gradient one buffer, reduce-scatter it, keep this rank's share.

        FSDP1: the views' backward concatenates the gradients into the flat parameter's (`split_with_sizes_backward`; zeros for frozen
        weights), cast to the reduce dtype if that differs. FSDP2: copied into the reduce-scatter's input, which outlives the unit.
        """
        m, sharding = self.machine, self.setup.sharding
        own = members[0].itemsize
        total = self._flat(unit, members)
        reduce = sharding.reduce_itemsize or own
        if sharding.copies_out:
            if unit in self.unsharded:
                for parameter in members:
                    parameter.grad = None
                return
            if unit != ROOT:
                self.gathered.pop(unit, None)
            self.reducing.clear()
            self.reducing.append(Storage(m.ledger, total * reduce, "communication"))
            self._share(members)
            return
        zeros = Storage(m.ledger, (total - sum(p.numel for p in members)) * own, "gradients") if len(members) < total else None
        flat = Storage(m.ledger, total * own, "gradients") if len(self.parameters[unit]) > 1 and len(members) > 1 else None
        for parameter in members:
            parameter.grad = None
        del zeros
        if unit in self.unsharded:
            return
        wide = Storage(m.ledger, total * reduce, "communication", REDUCE) if reduce != own else None
        self._share(members)
        del flat, wide

    def _partition(self, parameter: Parameter, unit: int) -> None:
        """ZeRO-3: the gradient moves to the bucket; a full bucket is copied once more (interleaved by rank) and scattered (`stage3.py`,
        `__add_grad_to_ipg_bucket`; `coalesced_collectives.py`); one that is larger than the bucket is its own. Taken at the end of each
        unit. qgZ sends int4 of one tensor after the other, there and back. With an offloaded optimizer the norm of each part is taken in
        float64, `NORM_BUFFER` elements at a time (`_constant_buffered_norm2`)."""
        ledger, sharding = self.machine.ledger, self.setup.sharding
        itemsize = parameter.itemsize
        parameter.grad = None
        parameter.grad = Tensor(Storage(ledger, 0), 0, itemsize)
        if unit not in self.pending:
            return
        self.pending[unit] -= 1
        if self.pending[unit]:
            return
        sizes = [p.numel for p in self.parameters[unit] if p.node is not None]
        self.pending[unit] = len(sizes)
        bucket = sharding.reduce_bucket or max(sizes)
        fitting = [size for size in sizes if size <= bucket]
        whole = sum(fitting) * (self.setup.layers if unit != ROOT else 1)
        flat = Storage(
            ledger,
            max(fitting, default=0) if sharding.reduces_int4 else min(whole, bucket) * itemsize,
            "communication",
            self.reduces_on,
        )
        if sharding.offload_optimizer:
            Storage(ledger, min(sharding.share(max(sizes)), NORM_BUFFER) * 8, "communication", self.reduces_on)
        del flat

    def _share(self, members: list[Parameter]) -> None:
        """This rank's part of the gradients, in the dtype of the shards; on the host when the parameters rest there."""
        sharding = self.setup.sharding
        for parameter in members:
            if parameter.grad is not None and parameter.grad.numel != parameter.numel:
                continue
            size = max(parameter.itemsize, self.setup.stored_itemsize) if parameter.kind != "adapter" else parameter.itemsize
            share = 0 if sharding.offload_params else sharding.share(parameter.numel, parameter.kind)
            share_of(self.machine, parameter, share, size, REDUCE)


def unit_of(parameter: Parameter, setup: Setup) -> int:
    """The unit that a parameter is gathered with."""
    if not setup.sharding.wrapped:
        return ROOT
    apart = parameter.layer == ROOT and parameter.kind != "embedding" and setup.sharding.head_apart
    return HEAD if apart else parameter.layer


def on_grad(parameter: Parameter, action: Callable[[Parameter], None]) -> None:
    """Run `action` after each accumulation into the parameter's gradient."""
    sink = parameter.node
    assert isinstance(sink, Sink)
    sink.on_grad = action


def share_of(m: Machine, parameter: Parameter, share: int, itemsize: int, stream: int = COMPUTE) -> None:
    """Replace a full gradient by this rank's share of it (FSDP allocates it on the reduce-scatter's stream)."""
    before, m.ledger.component = m.ledger.component, "gradients"
    parameter.grad = Tensor(Storage(m.ledger, share * itemsize, "", stream), share, itemsize)
    m.ledger.component = before


def units_of(m: Machine, setup: Setup, parameters: list[Parameter]) -> Units | None:
    """Group the parameters into units and hook their gradients; None when weights are not sharded.

    FSDP1's rate limiter lets two all-gathers be under way before the computation has released what the one before used
    (`_limiter_utils.py`, `_max_num_inflight_all_gathers`); leaves that are wrapped by themselves count among them, so that a block has
    been waited for by the time the next but one is asked for. DeepSpeed gathers and
    copies on a stream of its own and lets two modules' fetches be under way (`__max_ongoing_fetch_events`). Without the limiter the host
    runs ahead, at most through all units.
    """
    sharding = setup.sharding
    if not sharding.shards_weights and sharding.strategy not in ("fsdp1", "zero3"):
        return None
    groups: dict[int, list[Parameter]] = defaultdict(list)
    for parameter in parameters:
        groups[unit_of(parameter, setup)].append(parameter)
    units = Units(m, setup, dict(groups) if sharding.shards_weights else {})
    if sharding.strategy == "fsdp1":
        _flatten(m, groups)
        if sharding.leaves_apart:
            units.frozen = frozenset(unit for unit, members in groups.items() if any(p.node is None for p in members))
    if sharding.strategy == "zero3" and not sharding.built_sharded:
        _move_whole(m, groups, sharding)
    if sharding.strategy == "zero3" and not sharding.shards_weights:  # one rank gathers nothing (`NoGatherHandle`)
        for parameter in parameters:
            if parameter.node is not None:
                on_grad(parameter, units.reduced)
    if not sharding.shards_weights:
        return units
    for unit, members in groups.items():
        trained = [p for p in members if p.node is not None]
        units.pending[unit] = len(trained if sharding.strategy == "zero3" else units._grouped(unit))
        units.first_leaves[unit] = next((p for p in trained if p.kind == "adapter"), None)
        for parameter in members:
            if parameter.node is not None:
                on_grad(parameter, units.reduced)
    if sharding.strategy == "fsdp1":
        m.ledger.lag = (
            (0 if sharding.asks_after_leaves else 2 - sharding.leaves_wrapped) if sharding.limits_gathers else setup.layers
        )
    elif sharding.strategy == "zero3":
        m.ledger.lag = 1
    return units


def _move_whole(m: Machine, groups: dict[int, list[Parameter]], sharding: Sharding) -> None:
    """ZeRO-3 of a model that was not built sharded: the engine moves all of it to the card, then partitions one parameter after the
    other, and empties the cache (DeepSpeed 0.19 `engine.py` `_configure_distributed_model`; `zero/utils.py` `defragment`). Here: what of
    each parameter is not this rank's."""
    rest = []
    for unit in sorted(groups, key=lambda unit: (unit == ROOT, unit)):
        m.ledger.enter("load", unit)
        rest += [Storage(m.ledger, (p.numel - sharding.share(p.numel)) * p.itemsize, "weights") for p in groups[unit]]
    rest.reverse()
    for unit in sorted(groups, key=lambda unit: (unit == ROOT, unit)):
        m.ledger.enter("load", unit)
        for _ in groups[unit]:
            rest.pop()
    m.ledger.enter("load")
    m.ledger.empties = True


def _flatten(m: Machine, groups: dict[int, list[Parameter]]) -> None:
    """FSDP1 moves each unit to the card, concatenates it to its flat parameter and keeps a shard (`_init_utils.py`,
    `_move_module_to_device`; `_flat_param.py`, `_init_flat_param_and_metadata`, `shard`); the root comes last."""
    for unit in sorted(groups, key=lambda unit: (unit == ROOT, unit)):
        m.ledger.enter("load", unit)
        whole = [Storage(m.ledger, p.numel * p.itemsize, "weights") for p in groups[unit]]
        flat = Storage(m.ledger, sum(storage.nbytes for storage in whole), "weights")
        whole.reverse()
        while whole:
            whole.pop()
        del flat
