"""Optimizer states and what the step allocates for a moment.

Sources: torch 2.13 `optim/adamw.py` (`_multi_tensor_adamw`: one list of temporaries the size of the parameters, in 2.0 two; fused:
none; the per-tensor loop: one tensor), bitsandbytes 0.50 `optim/optimizer.py` (8-bit states with one float32 per 256 elements; tensors
below 4096 elements stay 32-bit, and embeddings where the HF Trainer makes the optimizer: it registers them with
`GlobalOptimManager`), transformers 5.24 `optimization.py` (Adafactor) and
`trainer_optimizer.py`, torchao 0.13 `optim/`; transformers 4.20 `optimization.py` (AdamW: parameter after parameter, its states first; the
name `denom` holds the last one's until the next is there).
"""

from __future__ import annotations

from memlint.memory import zero
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.setup import Setup
from memlint.memory.tensor import FP32, HALF, Parameter, Storage, Tensor

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
    """What an optimizer makes when it is constructed: the float32 copies of half weights; under ZeRO mostly its states, too."""
    ledger, sharding = m.ledger, setup.sharding
    away = not sharding.states_here or setup.optimizer in OFF_DEVICE
    if not setup.master_weights or sharding.remainders or away or not trained:
        return []
    if sharding.is_zero:
        return zero.masters(m, setup, trained, _flat_states(setup, trained) if zero.makes_states_first(setup) else [])
    held = []
    for parameter in trained:
        if parameter.itemsize != FP32:
            ledger.enter("load", parameter.layer)
            held.append(Storage(ledger, _on_card(setup, parameter, parameter.numel * FP32), "optimizer_states"))
    ledger.enter("load")
    return held


def _flat_states(setup: Setup, trained: list[Parameter]) -> list[int]:
    """Bytes of each state of the flat tensors that ZeRO's optimizer sees."""
    here = setup.sharding.states_here
    return [int(nbytes * here) for piece in zero.pieces(setup, trained) for nbytes in state_bytes(setup, piece)]


def _on_card(setup: Setup, p: Parameter, nbytes: int) -> int:
    """This rank's part of that many bytes of a parameter's states; of offloaded ones what is not in host memory."""
    ranks = setup.sharding.states_ranks(p.name.startswith("experts.") or p.kind == "experts")
    return int(-(-nbytes // ranks) * setup.sharding.states_here)


def states(m: Machine, setup: Setup, trained: list[Parameter]) -> list[Storage]:
    """Allocate every state that the optimizer makes in its first step."""
    ledger = m.ledger
    before, ledger.component = ledger.component, "optimizer_states"
    held: list[Storage] = []
    sharding = setup.sharding
    if not sharding.states_here or setup.optimizer in OFF_DEVICE:
        ledger.component = before
        return held
    flat = sharding.is_zero and setup.master_weights
    if flat and not zero.makes_states_first(setup):
        ledger.enter("states")
        held += [Storage(ledger, nbytes) for nbytes in _flat_states(setup, trained)]
    denominator = None
    for parameter in trained:
        ledger.enter("states", parameter.layer)
        if sharding.remainders:
            held.append(Storage(ledger, _on_card(setup, parameter, parameter.numel * HALF)))
        for nbytes in (*(() if flat else state_bytes(setup, parameter)), *importance_bytes(setup, parameter)):
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
    if setup.sharding.is_zero and setup.master_weights:
        zero.step(m, setup, live, setup.foreach and (name in ADAM or name in ONE_STATE))
    elif name == "adamw_apex_fused" and setup.master_weights:
        _master_gradients(m, live)
    elif name == "adafactor":
        biggest = max(live, key=lambda p: p.numel)
        update = m.new(biggest.numel, FP32)
        m.transient(biggest.numel, FP32)
        del update
    elif setup.foreach and (name in ADAM or name in ONE_STATE):
        _multi_tensor(m, setup, live)
    elif name == "adamw_hf":
        denominator = None
        for parameter in live:
            m.ledger.enter("optimizer_step", parameter.layer)
            denominator = m.new(parameter.numel, parameter.itemsize)
        del denominator
    elif name in ADAM and name not in FUSED and not setup.foreach and not setup.master_weights:
        biggest = max(live, key=lambda p: p.numel)
        m.transient(biggest.numel, biggest.itemsize)


def _master_gradients(m: Machine, live: list[Parameter]) -> None:
    """Under apex's amp at level O2 float32 weights get gradients of their own beside those of the model, from the end of backward to
    `zero_grad` (apex 23.05 to 25.04 `amp/_process_optimizer.py`, `post_backward_with_master_weights`)."""
    held = []
    for parameter in live:
        m.ledger.enter("optimizer_step", parameter.layer)
        held.append((parameter.layer, m.new(parameter.numel, FP32)))
    while held:
        m.ledger.enter("optimizer_step", held[0][0])
        held.pop(0)


def _multi_tensor(m: Machine, setup: Setup, live: list[Parameter]) -> None:
    """Temporaries of all parameters of one dtype at once; their names hold them until those of the next dtype are there
    (`_group_tensors_by_device_and_dtype`)."""
    ranks = setup.sharding.ranks if setup.sharding.shards_states else 1
    sizes = [FP32 if setup.master_weights else step_itemsize(setup, parameter) for parameter in live]
    named: list[list[tuple[int, Tensor]]] = [[] for _ in range(setup.stack.foreach_lists if setup.optimizer in ADAM else 1)]
    for itemsize in dict.fromkeys(sizes):
        for name in named:
            made = []
            for parameter, size in zip(live, sizes, strict=True):
                if size == itemsize:
                    m.ledger.enter("optimizer_step", parameter.layer)
                    made.append((parameter.layer, m.new(-(-parameter.numel // ranks), size)))
            _let_go(m, name)
            name += made
            made.clear()
    for name in named:
        _let_go(m, name)


def _let_go(m: Machine, held: list[tuple[int, Tensor]]) -> None:
    """Drop temporaries with their layers, the first one first."""
    held.reverse()
    while held:
        m.ledger.enter("optimizer_step", held[-1][0])
        held.pop()
