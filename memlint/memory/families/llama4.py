"""Llama 4: experts that every token passes with its own weight for each, layers without positions, dense layers between.

Read in transformers 5.24 `models/llama4/modeling_llama4.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.llama import Part, Rotary, decoder, mlp_of
from memlint.memory.families.llama_styles import Style
from memlint.memory.families.mla import turn_complex
from memlint.memory.families.model import Model
from memlint.memory.linear import apply, stacked
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, INT64, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The text decoder, all of its layers where they differ."""
    if layers < b.setup.layers:
        raise NotUniform
    return decoder(b, a, layers, Style(names_attention=True), attention, feed_forward)


def attention(b: Builder, a: Architecture, style: Style, rotary: Rotary, index: int) -> Part:
    """Rotary positions as complex numbers and normalised heads, or neither."""
    b.parent = "attn"
    config, hidden, heads, head_dim = a.config, a.hidden_size or 0, a.heads or 1, rotary.head_dim
    kv_heads, bias = a.kv_heads or heads, bool(config.get("attention_bias"))
    widths = (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim)
    q_proj, k_proj, v_proj = (b.linear(n, hidden, w, bias) for n, w in zip(("q_proj", "k_proj", "v_proj"), widths, strict=True))
    out = b.linear("o_proj", widths[0], hidden, bias)
    turned = config.get("no_rope_layers")
    rotates = bool(turned[index]) if isinstance(turned, Sequence) and index < len(turned) else (index + 1) % 4 != 0
    normalises = rotates and bool(config.get("use_qk_norm", True))
    tunes = not rotates and bool(config.get("attn_temperature_tuning", True))
    dropout = float(a.dropouts.get("attention_dropout", 0.0))

    def part(m: Machine, x: Tensor) -> Tensor:
        q, k, v = apply(m, q_proj, x), apply(m, k_proj, x), apply(m, v_proj, x)
        if rotates:
            cos, sin = rotary.tables[-1]
            q, k = turn_complex(m, q, cos, sin), turn_complex(m, k, cos, sin)
        if normalises:
            q, k = parts.rms_norm(m, q, None, head_dim), parts.rms_norm(m, k, None, head_dim)
        if tunes:
            q = ops.cast(m, ops.scale(m, ops.cast(m, q, FP32)), q.itemsize)
        shape = Shape(m.batch, m.sequence, m.sequence, heads, kv_heads, head_dim, head_dim, dropout, float32_softmax=False)
        mixed = attend(m, q, k, v, shape)
        return apply(m, out, mixed)

    return part


def feed_forward(b: Builder, a: Architecture, style: Style, index: int) -> Part:
    """Experts in every `interleave_moe_layer_step`-th layer, else a wide MLP."""
    config = a.config
    listed, step = config.get("moe_layers"), int(config.get("interleave_moe_layer_step") or 1)
    if not (index in listed if isinstance(listed, Sequence) else (index + 1) % step == 0):
        return mlp_of(b, a, style, index, inner=int(config.get("intermediate_size_mlp") or 0))
    hidden, inner, act = a.hidden_size or 0, a.intermediate_size or 0, a.activation or "silu"
    count, top_k = int(config.get("num_local_experts") or 16), int(config.get("num_experts_per_tok") or 1)
    b.parent = "experts"
    both = b.stack("gate_up_proj", count, hidden, 2 * inner, ())
    down = b.stack("down_proj", count, inner, hidden, ())
    b.parent = "mlp"
    router = b.linear("router", hidden, count)
    shared = mlp_of(b, a, style, index, inner, "shared_expert")

    def route(m: Machine, x: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        logits = apply(m, router, x)
        chosen = m.new(tokens * top_k, INT64)
        picked = ops.gather(m, logits, chosen, tokens * top_k)
        spread = _scattered(m, picked, chosen, tokens * count)
        return ops.cast(m, ops.unary(m, ops.cast(m, spread, FP32), keeps="output"), spread.itemsize), logits

    def experts(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        gate, up = ops.split(m, ops.matmul(m, x, stacked(m, both), rows * 2 * inner), (rows * inner, rows * inner))
        return ops.matmul(m, ops.mul(m, up, parts.activation(m, gate, act)), stacked(m, down), x.numel)

    def part(m: Machine, x: Tensor) -> Tensor:
        scores, _held = route(m, x, x.numel // hidden)
        routed_in = ops.spread(m, x, count * x.numel)
        routed_in = ops.mul(m, routed_in, ops.copy(m, scores))
        routed_out = experts(m, routed_in)
        out = shared(m, x)
        added = ops.sum_groups(m, routed_out, x.numel)
        numel, itemsize = out.numel, out.itemsize
        return m.tape.record(Tensor(out.storage, numel, itemsize), (out, added), lambda g: (g, g))

    return part


def _scattered(m: Machine, x: Tensor, index: Tensor, numel: int) -> Tensor:
    """`torch.full_like(...).scatter_(1, index, x)`: keeps the index."""
    out = m.new(numel, x.itemsize)
    few, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(few, itemsize),), (index.storage,))
