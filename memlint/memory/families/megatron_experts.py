"""Megatron-Core's mixture of experts: one rank's experts between two exchanges of tokens.

Read in Megatron-LM 0.13 (`core/transformer/moe/moe_layer.py`, `token_dispatcher.py` `MoEAlltoAllTokenDispatcher`, `experts.py`
`TEGroupedMLP`). Tokens are taken to be routed evenly.
"""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families.megatron_parts import Layer, adapted, linear, linear_of, low_rank, number, swiglu
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Parameter, Tensor
from memlint.models.architecture import Architecture


def routed(a: Architecture) -> int:
    """How many experts; 0 for a dense model."""
    return number(a, "num_local_experts", "n_routed_experts", "num_experts", "expert_num")


def experts(b: Builder, a: Architecture) -> Layer:
    """This rank's experts, each token going to its `top_k`: the sorted inputs and both projections are kept for every copy."""
    hidden, setup, sharding = a.hidden_size or 0, b.setup, b.setup.sharding
    inner = (number(a, "moe_intermediate_size", "moe_ffn_hidden_size") or a.intermediate_size or 0) // sharding.expert_tensor
    local = max(1, routed(a) // sharding.expert)
    top_k = number(a, "num_experts_per_tok", "moe_topk", "topk") or 2
    router = b.parameter("router", "linear", (routed(a), hidden))
    fc1 = b.parameter("experts.linear_fc1", "expert", (local * 2 * inner, hidden))
    fc2 = b.parameter("experts.linear_fc2", "expert", (local * hidden, inner))
    first: tuple[Parameter, ...] = ()
    second: tuple[Parameter, ...] = ()
    if setup.adapter and b.targets("linear_fc1", False):
        first = low_rank(b, "experts.linear_fc1", hidden, 2 * inner, local)
        second = low_rank(b, "experts.linear_fc2", inner, hidden, local)
    beside = _shared(b, a)

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        m.transient(rows * router.shape[0], FP32)
        mine = rows * top_k * hidden
        here = mine * sharding.expert_tensor
        sent = _moved(m, x, mine)
        received = _moved(m, sent, here) if here > mine or sharding.expert > 1 else sent
        tokens = _moved(m, received, here) if local > 1 else received
        out = adapted(m, setup, linear(m, tokens, fc1, hidden, 2 * inner), tokens, first)
        out = swiglu(m, out)
        out = adapted(m, setup, linear(m, out, fc2, inner, hidden), out, second)
        if local > 1:
            out = _moved(m, out, here)
        del tokens, received, sent  # local variables of `experts_compute` and `custom_forward`
        if here > mine or sharding.expert > 1:
            out = _moved(m, out, mine)
        out = _moved(m, out, x.numel)
        if beside is not None:
            out = ops.add(m, out, beside(m, x))
        return out

    return feed_forward


def _shared(b: Builder, a: Architecture) -> Layer | None:
    """The expert that sees every token, on all of its positions."""
    hidden = a.hidden_size or 0
    inner = number(a, "moe_shared_expert_intermediate_size", "shared_expert_intermediate_size") or number(
        a, "n_shared_experts"
    ) * number(a, "moe_intermediate_size")
    inner //= b.setup.sharding.tensor
    if not inner:
        return None
    fc1, fc2 = linear_of(b, "shared.linear_fc1", hidden, 2 * inner), linear_of(b, "shared.linear_fc2", inner, hidden)

    def shared(m: Machine, x: Tensor) -> Tensor:
        return ops.resized(m, fc2(m, swiglu(m, fc1(m, ops.resized(m, x, m.tokens * hidden)))), x.numel)

    return shared


def _moved(m: Machine, x: Tensor, numel: int) -> Tensor:
    """Rows permuted, exchanged or summed up into a new tensor; so is their gradient on the way back."""
    out = m.new(numel, x.itemsize)
    back, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(back, itemsize),))
