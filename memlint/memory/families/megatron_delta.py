"""Gated delta networks under Megatron: the linear attention of Qwen3-Next and Qwen3.5, one rank's heads of it.

Read in Megatron-LM `core/ssm/gated_delta_net/gdn.py` and `common.py` (preparation and gated norm are compiled: they keep their inputs) and
flash-linear-attention `fla/ops/gated_delta_rule/chunk.py` (`ChunkGatedDeltaRuleFunction`: keeps its operands and the inverse of each
chunk's triangle; the states of all chunks are made anew in backward).
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Grads, Parameter, Storage, Tensor
from memlint.models.architecture import Architecture

CHUNK = 64
"""Positions of one chunk (`chunk_local_cumsum(g, chunk_size=64)`)."""

Part = Callable[[Machine, Tensor], Tensor]


def is_linear(a: Architecture, index: int) -> bool:
    """Whether a layer has linear attention."""
    if not a.config.get("linear_num_value_heads"):
        return False
    kinds = a.config.get("layer_types") or ()
    every = int(a.config.get("full_attention_interval") or 4)
    return kinds[index] == "linear_attention" if index < len(kinds) else bool((index + 1) % every)


def delta_net(b: Builder, a: Architecture, linear: Callable[[Builder, str, int, int], Part]) -> Part:
    """Projection, a short convolution, the gated delta rule, a gated norm, projection; `linear` makes the two projections."""
    config, hidden, split = a.config, a.hidden_size or 0, b.setup.sharding.tensor
    k_heads, v_heads = int(config["linear_num_key_heads"]) // split, int(config["linear_num_value_heads"]) // split
    k_dim, v_dim = int(config["linear_key_head_dim"]), int(config["linear_value_head_dim"])
    keys, values = k_heads * k_dim, v_heads * v_dim
    mixed = 2 * keys + values
    project = linear(b, "in_proj", hidden, mixed + values + 2 * v_heads)
    conv = b.parameter("conv1d", "conv", (mixed, int(config.get("linear_conv_kernel_dim") or 4)))
    for name in ("dt_bias", "A_log"):
        b.vector(name, v_heads)
    b.norm("out_norm", v_dim)
    out = linear(b, "out_proj", values, hidden)

    def mixer(m: Machine, x: Tensor) -> Tensor:
        full = m.tokens
        qkv, gate, features = ops.split(m, project(m, x), (full * mixed, full * values, full * 2 * v_heads))
        del x
        convolved = _convolved(m, ops.copy(m, qkv), conv)
        del qkv
        sizes = (full * v_heads * k_dim, full * v_heads * k_dim, full * values)
        query, key, value = _prepared(m, convolved, features, sizes)
        del convolved, features
        core = _rule(m, query, key, value, full * v_heads, full * v_heads * v_dim * k_dim // CHUNK)
        del query, key, value
        return out(m, _gated_norm(m, core, gate))

    return mixer


def _convolved(m: Machine, x: Tensor, weight: Parameter) -> Tensor:
    """`causal_conv1d` with its activation: keeps its contiguous input."""
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(m.new(numel, itemsize), (x, weight), lambda g: (m.new(numel, itemsize), None), (x.storage,))


def _prepared(m: Machine, x: Tensor, features: Tensor, sizes: tuple[int, int, int]) -> tuple[Tensor, ...]:
    """Split, normalised, repeated to all value heads, made contiguous, in one compiled function: keeps what came in."""
    itemsize, back, rest = x.itemsize, x.numel, features.numel
    outs = tuple(m.new(size, itemsize) for size in sizes)

    def rule(*g: Tensor | None) -> Grads:
        return m.new(back, itemsize), m.new(rest, itemsize)

    return m.tape.record_many(outs, (x, features), rule, (x.storage, features.storage))


def _rule(m: Machine, q: Tensor, k: Tensor, v: Tensor, rows: int, states: int) -> Tensor:
    """The chunked kernel over `rows` = positions x heads; `states` are the elements of all chunks' states."""
    itemsize, sizes = q.itemsize, (q.numel, k.numel, v.numel)
    gates = Storage(m.ledger, rows * FP32), Storage(m.ledger, rows * itemsize)  # decay, summed up; beta
    m.transient(rows * CHUNK, FP32)
    triangle = m.new(rows * CHUNK, itemsize)
    temporary = [m.new(size, itemsize) for size in (sizes[1], sizes[2], states, sizes[2])]  # w, u, states, new values
    core = m.new(sizes[2], itemsize)
    del temporary

    def rule(g: Tensor) -> Grads:
        again = [m.new(size, itemsize) for size in (sizes[1], sizes[2], states, sizes[2])]
        again += [
            m.new(states, itemsize),
            m.new(sizes[2], itemsize),
            m.new(sizes[1], itemsize),
        ]  # their gradients, those of u and w
        grads = tuple(m.new(size, itemsize) for size in sizes)
        del again
        return grads

    saved = (q.storage, k.storage, v.storage, *gates, triangle.storage)
    del triangle
    return m.tape.record(core, (q, k, v), rule, saved)


def _gated_norm(m: Machine, x: Tensor, gate: Tensor) -> Tensor:
    """`norm(x) * silu(gate)`, compiled; the transposition to (sequence, batch, ...) copies only larger batches."""
    numel, itemsize = x.numel, x.itemsize
    saved = (x.storage, gate.storage)
    out = m.tape.record(m.new(numel, itemsize), (x, gate), lambda g: (m.new(numel, itemsize), m.new(numel, itemsize)), saved)
    return ops.copy(m, out) if m.batch > 1 else out
