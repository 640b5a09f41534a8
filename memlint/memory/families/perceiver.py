"""Idefics2's way from the tower's states to tokens: a gated projection, then learned latents that look at the patches and at one another.

transformers 5.24 `models/idefics2/modeling_idefics2.py`, `Idefics2Connector`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.vision import Tower, spread_token
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor
from memlint.typed import Any

Part = Callable[[Machine, Tensor], Tensor]


def connector(b: Builder, config: Mapping[str, Any], tower: Tower, inner: int, hidden: int, act: str) -> Part:
    """Projection and resampler; `config` is the resampler's, `inner` and `act` are the language model's."""
    gate, up = (b.linear(name, tower.hidden, inner) for name in ("gate_proj", "up_proj"))
    down = b.linear("down_proj", inner, hidden)
    count = int(config.get("resampler_n_latents") or 64)
    latents = b.parameter("latents", "token", (count, hidden))
    layers = [_layer(b, config, tower, hidden, count) for _ in range(int(config.get("resampler_depth") or 3))]
    final = b.norm("norm", hidden)

    def connect(m: Machine, x: Tensor) -> Tensor:
        context = parts.gated_mlp(m, x, gate, up, down, act)
        states = spread_token(m, latents, tower.images * count * hidden)
        for layer in layers:
            states = layer(m, states, context)
        return parts.rms_norm(m, states, final, hidden)

    return connect


def _layer(
    b: Builder, config: Mapping[str, Any], tower: Tower, hidden: int, count: int
) -> Callable[[Machine, Tensor, Tensor], Tensor]:
    heads, size = int(config.get("resampler_n_heads") or 16), int(config.get("resampler_head_dim") or 96)
    kv_heads, act = int(config.get("num_key_value_heads") or 4), str(config.get("hidden_act") or "silu")
    first, other = b.norm("input_latents_norm", hidden), b.norm("input_context_norm", hidden)
    q = b.linear("q_proj", hidden, heads * size)
    k, v = (b.linear(name, hidden, kv_heads * size) for name in ("k_proj", "v_proj"))
    out = b.linear("o_proj", heads * size, hidden)
    second = b.norm("post_attention_layernorm", hidden)
    gate, up = (b.linear(name, hidden, 4 * hidden) for name in ("gate_proj", "up_proj"))
    down = b.linear("down_proj", 4 * hidden, hidden)

    def layer(m: Machine, x: Tensor, context: Tensor) -> Tensor:
        residual = x
        x, seen = parts.rms_norm(m, x, first, hidden), parts.rms_norm(m, context, other, hidden)
        both = ops.concat(m, (seen, x))
        shape = Shape(tower.images, count, tower.patches + count, heads, kv_heads, size, size, causal=False)
        kept, m.mask = m.mask, None
        mixed = attend(m, apply(m, q, x), apply(m, k, both), apply(m, v, both), shape)
        m.mask = kept
        x = apply(m, out, mixed)
        del mixed, both
        x = residual = ops.add(m, residual, x)
        x = parts.gated_mlp(m, parts.rms_norm(m, x, second, hidden), gate, up, down, act)
        return ops.add(m, residual, x)

    return layer
