"""DeepSpeed's ZeRO on one rank: the gradients of its partition, and the step on flat tensors.

Read in DeepSpeed 0.10, 0.11, 0.12, 0.15 and 0.19, `runtime/zero/stage_1_and_2.py` and `stage3.py`.
"""

from __future__ import annotations

from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.tensor import BYTE, COMPUTE, FP32, REDUCE, Ledger, Parameter, Storage
from memlint.memory.timeline import MIDDLE, SIMULATED

DOUBLE = 8
"""Gradient norms are taken in float64, one parameter after the other (`get_grad_norm_direct`)."""


def pieces(setup: Setup, trained: list[Parameter]) -> list[Parameter]:
    """What the wrapped optimizer sees of a rank's partition: one flat tensor, at stage 3 one for each sub-group."""
    left = elements(setup, trained)
    size = at_once(setup, trained)
    sizes = [min(size, left - begin) for begin in range(0, left, max(size, 1))]
    return [Parameter(Storage(Ledger(), 0), numel, FP32, "flat", "linear", -1) for numel in sizes]


def makes_states_first(setup: Setup) -> bool:
    """Whether a step with gradients of zeros makes the optimizer's states before training (`initialize_optimizer_states`): at stage 3,
    and until 0.12 at the others, where later the first step does."""
    return setup.sharding.strategy == "zero3" or setup.stack.deepspeed < (0, 13)


def masters(m: Machine, setup: Setup, trained: list[Parameter], states: list[int]) -> list[Storage]:
    """The float32 copy of each piece (`_create_fp32_partitions`: of a clone), gradients of zeros for the largest, and beside them states
    of so many bytes."""
    ledger, here = m.ledger, setup.sharding.states_here
    ledger.enter("buffers")
    held, sizes = [], [piece.numel for piece in pieces(setup, trained)]
    for numel in sizes:
        clone = m.new(numel, trained[0].itemsize)
        held.append(Storage(ledger, int(numel * FP32 * here), "optimizer_states"))
        del clone
    zeros = m.new(max(sizes), FP32)
    held += [Storage(ledger, nbytes, "optimizer_states") for nbytes in states]
    del zeros
    return held


def partition(m: Machine, setup: Setup, trained: list[Parameter]) -> list[Storage]:
    """Stage 2: the flat gradients of this rank's partition, where those of a micro-batch go when a bucket is reduced, on the stream that
    reduces (`copy_grads_in_partition`). Those of the first one stay and the others' are added to them (`averaged_gradients`)."""
    sharding = setup.sharding
    if sharding.strategy != "zero2" or not trained or sharding.offload_optimizer:
        return []
    nbytes = elements(setup, trained) * (setup.grad_itemsize or trained[0].itemsize)
    return [Storage(m.ledger, nbytes, "gradients", _reduces_on(setup))]


def reduces_early(setup: Setup, trained: list[Parameter]) -> bool:
    """Whether a bucket is full before backward is over."""
    sharding = setup.sharding
    return sharding.strategy == "zero2" and sharding.reduce_bucket < elements(setup, trained) * sharding.ranks


def step(m: Machine, setup: Setup, live: list[Parameter], transient: bool) -> None:
    """Gradients are looked through for overflow (at stage 3 all at once, on the stream that reduces them, `has_overflow`; up to 0.11 those
    in bfloat16, too), measured, flattened, raised to float32, and used: the partition at once (`stage_1_and_2.py`, `step`) or one
    sub-group after the other (`stage3.py`, `_prepare_fp32_grad_for_sub_group`). `transient`: the wrapped optimizer makes a copy."""
    sharding, numel, ledger = setup.sharding, at_once(setup, live), m.ledger
    if sharding.strategy == "zero3" and (setup.float16 or setup.stack.deepspeed < (0, 12)):
        whole, stream = elements(setup, live), _reduces_on(setup)
        absolute = Storage(ledger, whole * live[0].itemsize, "workspace", stream)  # `torch.isinf`
        infinite = Storage(ledger, whole * BYTE, "workspace", stream)
        del absolute, infinite
    m.transient(max(sharding.share(p.numel) for p in live), DOUBLE)
    flat = m.new(numel, live[0].itemsize)
    wide = m.new(numel, FP32)
    del flat
    if sharding.strategy != "zero3":
        for parameter in live:
            ledger.enter("optimizer_step", parameter.layer)
            parameter.grad = None
        ledger.enter("optimizer_step")
        m.partition.clear()
    if transient:
        m.transient(numel, FP32)
    del wide


def at_once(setup: Setup, parameters: list[Parameter]) -> int:
    """Elements of a rank's partition that one call of the optimizer updates."""
    sharding, own = setup.sharding, elements(setup, parameters)
    if sharding.strategy != "zero3":
        return own
    return min(own, max(sharding.sub_group, *(sharding.share(p.numel) for p in parameters)))


def elements(setup: Setup, parameters: list[Parameter]) -> int:
    """Elements of a rank's part of these parameters at full depth, where only a few layers are simulated."""
    ranks = setup.sharding.states_ranks
    shares = [(p, -(-p.numel // ranks(p.name.startswith("experts.") or p.kind == "experts"))) for p in parameters]
    simulated = 1 + max((p.layer for p in parameters), default=0)
    own = sum(share for _, share in shares)
    if setup.repeats:
        return own + sum(r.copies * share for r in setup.repeats for p, share in shares if r.holds(p.layer))
    if simulated != SIMULATED:
        return own
    return own + max(0, setup.layers - SIMULATED) * sum(share for p, share in shares if p.layer == MIDDLE)


def _reduces_on(setup: Setup) -> int:
    """Without `overlap_comm` all is on the default stream."""
    return REDUCE if setup.sharding.overlap else COMPUTE
