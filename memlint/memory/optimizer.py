"""Optimizer states and what the step allocates for a moment.

Sources: torch 2.13 `optim/adamw.py` (`_multi_tensor_adamw`: one list of temporaries the size of the parameters; fused: none; the
per-tensor loop: one tensor), bitsandbytes 0.50 `optim/optimizer.py` (8-bit states with one float32 per 256 elements; tensors
below 4096 elements stay 32-bit, and embeddings where the HF Trainer makes the optimizer: it registers them with `GlobalOptimManager`), transformers 5.24 `optimization.py` (Adafactor) and
`trainer_optimizer.py`, torchao 0.13 `optim/`; transformers 4.20 `optimization.py` (AdamW: parameter after parameter, its states first; the
name `denom` holds the last one's until the next is there).
"""

from __future__ import annotations

from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.setup import Setup
from memlint.memory.tensor import FP32, HALF, Parameter, Storage
from memlint.memory.timeline import MIDDLE, SIMULATED

FUSED = {"adamw_torch_fused", "adamw_apex_fused", "anyprecision_adamw", "adamw_torch_xla"}
ADAM = {"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw", "adam", "adamw_apex_fused", "adamw_torch_xla", "stable_adamw", "radam",
        "adamw_torch_cpu_offload", "nadam", "adamw_torch_npu_fused", "adopt", "grokadamw", "megatron_distributed_adam", "lora-fa",
        "lora_fa", "adamw_anyprecision", "deepspeed_cpu_adam", "adamw_mini"}  # fmt: skip
EIGHT_BIT = {
    "adamw_bnb_8bit",
    "adamw_8bit",
    "paged_adamw_8bit",
    "lamb_8bit",
    "adamw_torch_8bit",
    "ademamix_8bit",
    "paged_ademamix_8bit",
}
ONE_STATE = {"lion_32bit", "lion", "paged_lion_32bit", "rmsprop", "momentum", "adagrad", "muon", "lomo_momentum", "asgd", "lars"}
EIGHT_BIT_ONE = {"lion_8bit", "paged_lion_8bit", "rmsprop_bnb_8bit", "rmsprop_8bit", "adagrad_8bit"}
TWO_STATES = {"adadelta", "rprop", "sparse_adam", "lamb"}
MORE_STATES = {"ademamix": 3, "prodigy": 4}
"""AdEMAMix has a second momentum (bitsandbytes 0.50 `optim/ademamix.py`: `state1` holds both); Prodigy (prodigyopt 1.1.2) keeps the initial
weights and a running sum beside Adam's two."""
OFF_DEVICE = {"deepspeed_cpu_adam", "adamw_torch_cpu_offload", "deepspeed_cpu_lion", "deepspeed_cpu_adagrad"}
"""Optimizers whose states and step live in host memory."""
STATELESS = {"none", "sgd", "lomo", "adalomo", "sgd_plain", "schedule_free_sgd"}
PAGED_32 = {"paged_adamw_32bit", "paged_adamw", "adamw_bnb_32bit", "rmsprop_bnb", "rmsprop_bnb_32bit", "paged_lion"}


def masters(m: Machine, setup: Setup, trained: list[Parameter]) -> list[Storage]:
    """The float32 copies of half weights, which are made with the optimizer. DeepSpeed 0.15, 0.19 `initialize_optimizer_states` shows
    it gradients of zeros for a moment; Adam's own states come with the first step."""
    ledger, sharding = m.ledger, setup.sharding
    away = not sharding.states_here or setup.optimizer in OFF_DEVICE
    if not setup.master_weights or sharding.remainders or away or not trained:
        return []
    held = []
    for parameter in trained:
        if parameter.itemsize != FP32 or sharding.is_zero:
            ledger.enter("load", parameter.layer)
            held.append(Storage(ledger, _on_card(setup, parameter, parameter.numel * FP32), "optimizer_states"))
    ledger.enter("load")
    if sharding.is_zero:
        m.transient(_at_once(setup, trained), FP32)
    return held


def _on_card(setup: Setup, p: Parameter, nbytes: int) -> int:
    """This rank's part of that many bytes of a parameter's states; of offloaded ones what is not in host memory."""
    ranks = setup.sharding.states_ranks(p.name.startswith("experts.") or p.kind == "experts")
    return int(-(-nbytes // ranks) * setup.sharding.states_here)


def states(m: Machine, setup: Setup, trained: list[Parameter], phase: str = "states") -> list[Storage]:
    """Allocate every state that the optimizer makes in its first step; ZeRO-3 takes one with gradients of zeros before training (DeepSpeed
    0.19 `stage3.py`, `initialize_optimizer_states`; stages 1 and 2 no more since 0.13)."""
    ledger = m.ledger
    before, ledger.component = ledger.component, "optimizer_states"
    held: list[Storage] = []
    sharding = setup.sharding
    if not sharding.states_here or setup.optimizer in OFF_DEVICE:
        ledger.component = before
        return held
    denominator = None
    for parameter in trained:
        ledger.enter(phase, parameter.layer)
        if sharding.remainders:
            held.append(Storage(ledger, _on_card(setup, parameter, parameter.numel * HALF)))
        for nbytes in (*state_bytes(setup, parameter), *importance_bytes(setup, parameter)):
            held.append(Storage(ledger, _on_card(setup, parameter, nbytes)))
        if setup.optimizer == "adamw_hf":
            denominator = m.new(parameter.numel, parameter.itemsize)
    del denominator
    ledger.component = before
    return held


def importance_bytes(setup: Setup, p: Parameter) -> tuple[int, ...]:
    """What AdaLoRA's rank allocator keeps for each of its weights: sensitivity, its running mean and its uncertainty (peft 0.21.2
    `tuners/adalora/layer.py`, `RankAllocator.update_ipt`)."""
    return (p.numel * p.itemsize,) * 3 if setup.adapter == "adalora" and p.kind == "adapter" else ()


def state_bytes(setup: Setup, p: Parameter) -> tuple[int, ...]:
    """Bytes of each state tensor of one parameter."""
    name = setup.optimizer
    size = FP32 if setup.master_weights else step_itemsize(setup, p)
    if name in STATELESS or name.startswith("paged"):
        # Paged states are managed memory outside torch's allocator (bitsandbytes 0.50 `functional.py`, `get_paged`).
        return ()
    if name in EIGHT_BIT:
        momenta = 2 if "ademamix" in name else 1
        if p.numel < 4096 or (p.kind == "embedding" and setup.wide_embeddings and name != "adamw_torch_8bit"):
            return (momenta * p.numel * FP32, p.numel * FP32)
        blocks = -(-p.numel // 256) * 4
        return (momenta * p.numel, p.numel, momenta * blocks, blocks)
    if name in EIGHT_BIT_ONE:
        if p.numel < 4096 or (p.kind == "embedding" and setup.wide_embeddings):
            return (p.numel * FP32,)
        return (p.numel, -(-p.numel // 256) * 4)
    if name in ("adamw_torch_4bit", "lpmm_adamw_4bit", "lpmm_adamw_4bit_rank1"):
        blocks = -(-p.numel // 128) * 4
        return (p.numel // 2, p.numel // 2, blocks, blocks)
    if name == "adamw_torch_fp8":
        return (p.numel, p.numel)
    if name in PAGED_32:
        return (p.numel * FP32,) * (1 if "lion" in name or "rmsprop" in name else 2)
    if name == "adafactor":
        if len(p.shape) >= 2:
            return (p.shape[0] * FP32, p.numel // p.shape[0] * FP32)
        return (p.numel * FP32,)
    if name.startswith(("galore", "apollo", "q_galore")):
        return _low_rank(p, name)
    if name in ONE_STATE:
        return (p.numel * size,)
    if name in MORE_STATES:
        return (p.numel * size,) * MORE_STATES[name]
    if name in ADAM or name in TWO_STATES or name.startswith("schedule_free"):
        first, second = setup.moments
        return (p.numel * (first or size), p.numel * (second or size))
    raise CannotEstimate(f"optimizer {name!r} is not modelled")


def step_itemsize(setup: Setup, p: Parameter) -> int:
    """dtype in which the optimizer sees a parameter: that of its shard."""
    return max(p.itemsize, setup.stored_itemsize) if p.kind != "adapter" else p.itemsize


def _low_rank(p: Parameter, name: str, rank: int = 128) -> tuple[int, ...]:
    """GaLore (galore-torch 1.0 `galore_projector.py`): a projection and two states of that rank; rank 128 by default."""
    if p.kind != "linear" or len(p.shape) < 2:
        return (p.numel * p.itemsize, p.numel * p.itemsize)
    short, long = sorted((p.shape[0], p.numel // p.shape[0]))
    rank = min(rank, short)
    state = rank * long * (1 if "8bit" in name else p.itemsize)
    return (rank * short * p.itemsize, state, state)


def step(m: Machine, setup: Setup, trained: list[Parameter]) -> None:
    """What exists only during the step."""
    m.ledger.enter("optimizer_step")
    name = setup.optimizer
    live = [p for p in trained if p.grad is not None]
    if not live or name in STATELESS or name in OFF_DEVICE or setup.in_backward or setup.sharding.offload_optimizer:
        return
    ranks = setup.sharding.ranks if setup.sharding.shards_states else 1
    if setup.sharding.is_zero and setup.master_weights:
        _zero_step(m, setup, live)
    elif name == "adafactor":
        biggest = max(live, key=lambda p: p.numel)
        update = m.new(biggest.numel, FP32)
        m.transient(biggest.numel, FP32)
        del update
    elif setup.foreach and (name in ADAM or name in ONE_STATE):
        size = FP32 if setup.master_weights else 0
        held = []
        for parameter in live:
            m.ledger.enter("optimizer_step", parameter.layer)
            held.append(m.new(-(-parameter.numel // ranks), size or step_itemsize(setup, parameter)))
        held.reverse()
        while held:
            m.ledger.enter("optimizer_step", live[len(live) - len(held)].layer)
            held.pop()
    elif name == "adamw_hf":
        denominator = None
        for parameter in live:
            m.ledger.enter("optimizer_step", parameter.layer)
            denominator = m.new(parameter.numel, parameter.itemsize)
        del denominator
    elif name in ADAM and name not in FUSED and not setup.foreach and not setup.master_weights:
        biggest = max(live, key=lambda p: p.numel)
        m.transient(biggest.numel, biggest.itemsize)


def _zero_step(m: Machine, setup: Setup, live: list[Parameter]) -> None:
    """DeepSpeed's step: the norm of a rank's gradients is taken in float64, one after the other (0.19 `get_grad_norm_direct`); they are
    flattened, raised to float32, and used (`stage_1_and_2.py` `step`: the partition at once; `stage3.py`,
    `_prepare_fp32_grad_for_sub_group`: one sub-group after the other)."""
    sharding, elements = setup.sharding, _at_once(setup, live)
    m.transient(max(sharding.share(p.numel) for p in live), 2 * FP32)
    flat = m.new(elements, live[0].itemsize)
    wide = m.new(elements, FP32)
    del flat
    if sharding.strategy != "zero3":
        for parameter in live:
            m.ledger.enter("optimizer_step", parameter.layer)
            parameter.grad = None
        m.ledger.enter("optimizer_step")
    if setup.foreach and (setup.optimizer in ADAM or setup.optimizer in ONE_STATE):
        m.transient(elements, FP32)
    del wide


def _at_once(setup: Setup, parameters: list[Parameter]) -> int:
    """Elements of a rank's partition that one call of the optimizer updates."""
    sharding = setup.sharding
    elements = sharding.share(_elements(setup, parameters))
    if sharding.strategy != "zero3":
        return elements
    return min(elements, max(sharding.sub_group, *(sharding.share(p.numel) for p in parameters)))


def _elements(setup: Setup, parameters: list[Parameter]) -> int:
    """Elements of these parameters at full depth, where only a few layers are simulated."""
    simulated = 1 + max((p.layer for p in parameters), default=0)
    own = sum(p.numel for p in parameters)
    if setup.repeats:
        return own + sum(r.copies * p.numel for r in setup.repeats for p in parameters if r.holds(p.layer))
    if simulated != SIMULATED:
        return own
    return own + max(0, setup.layers - SIMULATED) * sum(p.numel for p in parameters if p.layer == MIDDLE)
