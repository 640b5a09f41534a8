"""DBRX: fused, clamped projections, bare layer norms, and experts that are visited one after the other.

Read in transformers 5.24 `models/dbrx/modeling_dbrx.py`; its sizes stand in `attn_config` and `ffn_config`.
"""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.llama import Part, Rotary, decoder
from memlint.memory.families.llama_styles import Style
from memlint.memory.families.model import Model
from memlint.memory.families.moe import LOOPED, index_add
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import INT64, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import Any


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The decoder with `layers` blocks."""
    return decoder(b, a, layers, Style(norm="layer"), attention, experts)


def _part(a: Architecture, name: str) -> dict[str, Any]:
    found = a.config.get(name)
    return dict(found) if isinstance(found, dict) else {}


def attention(b: Builder, a: Architecture, style: Style, rotary: Rotary, index: int) -> Part:
    """One projection for queries, keys and values, clamped."""
    b.parent = "attn"
    hidden, heads, head_dim = a.hidden_size or 0, a.heads or 1, rotary.head_dim
    kv_heads, config = a.kv_heads or heads, _part(a, "attn_config")
    kv_width = kv_heads * head_dim
    fused, out = b.linear("Wqkv", hidden, hidden + 2 * kv_width), b.linear("out_proj", hidden, hidden)
    dropout = float(config.get("attn_pdrop") or 0.0)

    def part(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        x = ops.clamp(m, apply(m, fused, x))
        q, k, v = ops.split(m, x, (rows * hidden, rows * kv_width, rows * kv_width))
        del x
        q, k = parts.rope(m, q, k, rotary.tables[-1])
        mixed = attend(m, q, k, v, Shape(m.batch, m.sequence, m.sequence, heads, kv_heads, head_dim, head_dim, dropout))
        return apply(m, out, mixed)

    return part


def experts(b: Builder, a: Architecture, style: Style, index: int) -> Part:
    """Each expert's weights are slices of three stacked parameters, whose gradients are as large as the whole."""
    hidden, config = a.hidden_size or 0, _part(a, "ffn_config")
    count, top_k = int(config.get("moe_num_experts") or 4), int(config.get("moe_top_k") or 1)
    inner = int(config.get("ffn_hidden_size") or 0)
    act = str(_part(a, "ffn_config").get("ffn_act_fn", {}).get("name", "silu"))
    b.parent = "mlp"
    router = b.linear("layer", hidden, count)
    gate, up, down = (b.parameter(name, "experts", (count * inner, hidden)) for name in ("w1", "v1", "w2"))
    visited = min(count, LOOPED)
    each = count // visited * inner * hidden

    def part(m: Machine, x: Tensor) -> Tensor:
        tokens = x.numel // hidden
        scores = ops.softmax(m, logits := apply(m, router, x), logits.itemsize)
        chosen = m.new(tokens * top_k, INT64)
        weights = ops.gather(m, scores, chosen, tokens * top_k)
        weights = ops.mul(m, weights, ops.small(m, ops.sum_last(m, weights, tokens)))
        hit = m.new((count + 1) * top_k * tokens, INT64)
        mixed = m.new(x.numel, x.itemsize)
        rows = tokens * top_k // visited
        for _ in range(visited):
            where = m.new(2 * rows, INT64)
            own = ops.gather(m, x, where, rows * hidden)
            first, second = (ops.matmul(m, own, ops.narrow(m, weight, each), rows * inner) for weight in (gate, up))
            own = ops.mul(m, parts.activation(m, first, act), second)
            own = ops.matmul(m, own, ops.narrow(m, down, each), rows * hidden)
            own = ops.mul(m, own, ops.gather(m, weights, where, rows))
            mixed = index_add(m, mixed, own, where)
            del first, second, own, where
        del hit, scores, logits
        return mixed

    return part
