"""Buffers of data-parallel gradient reduction that live across a step, and gradients that are used up on the spot.

Read in torch 2.13 `nn/parallel/distributed.py` and `csrc/distributed/c10d/reducer.cpp` (DDP), DeepSpeed 0.15
`runtime/zero/stage_1_and_2.py` and `stage3.py`, Megatron-LM 0.15 `core/distributed/param_and_grad_buffer.py`.
"""

from __future__ import annotations

from memlint.memory import zero
from memlint.memory.families.model import Model
from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.tensor import FP32, Parameter, Storage
from memlint.memory.units import on_grad, share_of


def gradient_buffers(m: Machine, setup: Setup, parameters: list[Parameter]) -> list[Storage]:
    """The buffers that are there from the first step on."""
    sharding = setup.sharding
    trained = [p for p in parameters if p.node is not None]
    if not trained:
        return []
    if sharding.strategy == "megatron":
        return _remapped(m, setup, trained)
    if sharding.strategy == "ddp" and sharding.world > 1:
        return _buckets(m, setup, trained)
    if sharding.strategy == "zero3":
        return _partitions(m, setup, parameters, trained)
    size = setup.grad_itemsize
    if sharding.strategy == "zero2":
        for parameter in trained:
            on_grad(parameter, lambda p: share_of(m, p, 0, p.itemsize))  # it moves to the bucket
    elif sharding.strategy == "zero1" and size:  # whole gradients in the dtype they are accumulated in (`param.grad_accum`)
        for parameter in trained:
            on_grad(parameter, lambda p: share_of(m, p, p.numel, size))
    return []


def _remapped(m: Machine, setup: Setup, trained: list[Parameter]) -> list[Storage]:
    """Megatron-LM 0.12 to 0.15 `param_and_grad_buffer.py`, `_ParamAndGradBuffer`: with the distributed optimizer the weights are copied
    into a buffer when the gradients' is there, too. `load_checkpoint` empties the cache afterwards (`training/checkpointing.py`)."""
    ledger, before, held = m.ledger, [], []
    for parameter in trained if setup.sharding.remaps else ():
        ledger.enter("load", parameter.layer)
        before.append(Storage(ledger, parameter.numel * parameter.itemsize, "weights"))
    for parameter in trained:
        ledger.enter("load", parameter.layer)
        held.append(Storage(ledger, parameter.numel * (setup.grad_itemsize or FP32), "gradients"))
    before.reverse()
    for parameter in trained if before else ():
        ledger.enter("load", parameter.layer)
        before.pop()
    ledger.enter("load")
    ledger.empties = setup.sharding.remaps
    return held


def _in_layer(m: Machine, parameter: Parameter, nbytes: int, component: str) -> Storage:
    m.ledger.enter("buffers", parameter.layer)
    return Storage(m.ledger, nbytes, component)


def _buckets(m: Machine, setup: Setup, trained: list[Parameter]) -> list[Storage]:
    """DDP: buckets as large as all gradients, which the gradients are views of with `gradient_as_bucket_view`."""
    if setup.sharding.bucket_view:
        for parameter in trained:
            on_grad(parameter, lambda p: share_of(m, p, 0, p.itemsize))
    return [_in_layer(m, p, p.numel * p.itemsize, "communication") for p in trained]


def _partitions(m: Machine, setup: Setup, parameters: list[Parameter], trained: list[Parameter]) -> list[Storage]:
    """ZeRO-3: the bucket (`__ipg_bucket_flat_buffer`) and this rank's gradients (`grad_partitions_flat_buffer`; with an offloaded
    optimizer on the host)."""
    sharding = setup.sharding
    held = []
    if sharding.secondary > 1 and sharding.ranks > 1:
        # ZeRO++ hpZ: made when a module's weights are partitioned after forward, for backward to gather from (`_partition_param_sec`).
        held = [_in_layer(m, p, -(-p.numel // sharding.secondary) * p.itemsize, "weights") for p in parameters]
    m.ledger.enter("buffers")
    held.append(Storage(m.ledger, sharding.reduce_bucket * trained[0].itemsize, "communication"))
    if not sharding.offload_optimizer:
        held.append(Storage(m.ledger, zero.elements(setup, trained) * (setup.grad_itemsize or trained[0].itemsize), "gradients"))
    return held


def bucket(m: Machine, setup: Setup, trained: list[Parameter]) -> list[Storage]:
    """ZeRO-1 and 2: the reduce buckets (two with overlap), which live while backward runs (`backward`, `_release_ipg_buffers`)."""
    sharding = setup.sharding
    if sharding.strategy not in ("zero1", "zero2") or not trained or not sharding.contiguous_gradients:
        return []
    copies = 2 if sharding.overlap else 1
    return [Storage(m.ledger, sharding.reduce_bucket * trained[0].itemsize, "communication") for _ in range(copies)]


def gathered_outputs(m: Machine, setup: Setup, model: Model) -> None:
    """`nn.DataParallel`: the first card gathers the logits of all replicas (torch 2.13 `nn/parallel/scatter_gather.py`), in the dtype in
    which the model returns them."""
    itemsize = FP32 if setup.stack.upcasts_in_model or setup.outputs_fp32 else setup.autocast or setup.weight_itemsize
    m.transient(setup.sharding.world * m.tokens * model.classes, itemsize)


def gathered_gradients(m: Machine, trained: list[Parameter]) -> None:
    """`nn.DataParallel`: when every replica's gradients are there, the first card sums them into new ones (`nn/parallel/_functions.py`,
    `Broadcast.backward`, `ReduceAddCoalesced`)."""
    summed = []
    for parameter in trained:
        m.ledger.enter("release", parameter.layer)
        summed.append(Storage(m.ledger, parameter.numel * parameter.itemsize, "gradients"))
    summed.reverse()
    for parameter in trained:
        m.ledger.enter("release", parameter.layer)
        summed.pop()


def step_in_backward(trained: list[Parameter]) -> None:
    """Each gradient is used and freed as soon as it is complete (torchtune `optimizer_in_bwd`)."""

    def drop(parameter: Parameter) -> None:
        parameter.grad = None

    for parameter in trained:
        on_grad(parameter, drop)
