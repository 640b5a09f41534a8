"""WavLM's attention: a bias for the distance of two frames, looked up once and gated by each layer's states, in torch's own attention.

Read in transformers 5.24 `models/wavlm/modeling_wavlm.py` and torch 2.13 `nn/functional.py` (`multi_head_attention_forward`): it reads the
weights of its projections and does not call them, so that adapters of theirs stay idle.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.linear import Linear, apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, INT64, Parameter, Tensor
from memlint.models.architecture import Architecture

Part = Callable[[Machine, Tensor], Tensor]


def attention_of(b: Builder, a: Architecture, index: int) -> Part:
    """The attention of one layer; the first one's makes what the others share."""
    hidden, heads = a.hidden_size or 768, a.heads or 12
    head_dim, buckets = hidden // heads, int(a.config.get("num_buckets") or 320)
    dropout = float(a.config.get("attention_dropout") or 0.0)
    b.parent = "attn"
    k, v, q, out = (b.linear(name, hidden, hidden, bias=True) for name in ("k_proj", "v_proj", "q_proj", "out_proj"))
    for linear in (k, v, q, out):
        linear.tuner = None
    gate_scale = b.vector("gru_rel_pos_const", heads, "scale")
    gate = b.linear("gru_rel_pos_linear", head_dim, 8, bias=True)
    table = b.embedding("rel_attn_embed", buckets, heads) if index == 0 else None
    checkpointed = b.setup.checkpointing != "none"

    def bias_of(m: Machine) -> Tensor:
        if table is None:
            return m.shared[0]
        recomputed = checkpointed and m.tape.enabled
        bias = _bias(m, table, heads, checkpointed and not recomputed)
        if not recomputed:
            m.shared = [bias]
        return bias

    def attention(m: Machine, x: Tensor) -> Tensor:
        scores = m.batch * heads * m.sequence * m.sequence
        bias = bias_of(m)
        gates = _gate(m, x, gate, gate_scale, heads)
        gated = ops.mul(m, gates[0], bias)
        plain, key, value = _projected(m, x, (q, k, v), hidden)
        masked = gated
        if m.mask is not None:
            padded = m.new(m.tokens * heads, x.itemsize)
            masked = ops.add(m, gated, padded)
        query = ops.scale(m, plain)
        weights = ops.add(m, ops.matmul(m, query, key, scores), ops.autocast(m, masked))
        del query, key
        itemsize = FP32 if m.autocast else weights.itemsize
        weights = ops.softmax(m, weights, itemsize)
        weights = ops.dropout(m, weights, dropout)
        mixed = ops.matmul(m, weights, value, x.numel)
        del value
        mixed = apply(m, out, ops.copy(m, mixed))
        m.weights = [m.new(scores // heads, itemsize)]  # the mean over heads, which nobody reads
        return mixed

    return attention


def _bias(m: Machine, table: Parameter, heads: int, outside: bool) -> Tensor:
    """`compute_bias`, repeated for each sample; `outside`: the region that makes it is recomputed, others hold what it made."""
    pairs = m.sequence * m.sequence
    enabled, m.tape.enabled = m.tape.enabled, True
    layer = m.ledger.within(-1) if outside else None
    values = ops.embedding(m, table, heads, pairs, m.new(0 if outside else pairs, INT64), inputs=False)
    bias = ops.spread(m, values, m.batch * heads * pairs)
    if layer is not None:
        m.ledger.within(layer)
    m.tape.enabled = enabled
    return bias


def _gate(m: Machine, x: Tensor, linear: Linear, scale: Parameter, heads: int) -> tuple[Tensor, ...]:
    """`gate_a * (gate_b * const - 1) + 2`, two sigmoids of sums of four; then what else has a name in the attention."""
    flat = ops.copy(m, ops.autocast(m, x))
    proj = apply(m, linear, flat)
    del flat
    rows = m.tokens * heads
    summed = ops.sum_last(m, ops.cast(m, proj, FP32) if m.autocast else proj, 2 * rows)
    del proj
    both = ops.unary(m, summed, keeps="output")
    first, second = ops.split(m, both, (rows, rows))
    return ops.shift(m, ops.mul(m, first, ops.shift(m, ops.mul(m, second, scale)))), summed, both


def _projected(m: Machine, x: Tensor, linears: tuple[Linear, ...], hidden: int) -> tuple[Tensor, ...]:
    """Positions come first here: where a weight needs a gradient, `matmul` folds them into rows, which copies (`should_fold`)."""
    biases = [linear.bias for linear in linears]
    together = ops.concat(m, tuple(bias for bias in biases if bias is not None))
    shares = ops.split(m, together, (hidden, hidden, hidden))
    results = []
    for linear, shift in zip(linears, shares, strict=True):
        half = ops.autocast(m, x)
        rows = ops.copy(m, half) if linear.weight.node is not None else half
        results.append(ops.add_in_place(m, ops.matmul(m, rows, linear.weight, x.numel), ops.autocast(m, shift)))
        del rows, half
    return tuple(results)
