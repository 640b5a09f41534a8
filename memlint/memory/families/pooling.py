"""Attention pooling: a learned query reads all positions of an image (`SiglipMultiheadAttentionPoolingHead`, transformers 5.24
`models/siglip/modeling_siglip.py`, over torch 2.13 `nn/functional.py`, `multi_head_attention_forward` with weights)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor

if TYPE_CHECKING:
    from memlint.memory.families.vision import Tower


def pooling_head(b: Builder, config: Mapping[str, Any], tower: Tower) -> Callable[[Machine, Tensor], Tensor]:
    """The head's weights, and the vectors of all images from the tower's states."""
    hidden, heads = tower.hidden, int(config.get("num_attention_heads") or 12)
    inner = int(config.get("intermediate_size") or 4 * hidden)
    act = str(config.get("hidden_act") or "gelu")
    probe = b.parameter("probe", "token", (hidden,))
    weight, shift = b.parameter("in_proj_weight", "attention", (3 * hidden, hidden)), b.vector("in_proj_bias", 3 * hidden)
    out = b.linear("out_proj", hidden, hidden, bias=True)
    norm, norm_bias = b.norm("layernorm", hidden), b.vector("layernorm.bias", hidden)
    up, down = b.linear("fc1", hidden, inner, bias=True), b.linear("fc2", inner, hidden, bias=True)
    out.tuner = None  # `nn.MultiheadAttention` reads the weights of its projection and does not call it

    def pooled(m: Machine, x: Tensor) -> Tensor:
        query = ops.spread(m, probe, tower.images * hidden)
        w_query, w_pair = ops.split(m, weight, (hidden * hidden, 2 * hidden * hidden))
        b_query, b_pair = ops.split(m, shift, (hidden, 2 * hidden))
        q = _projected(m, query, w_query, b_query, hidden, hidden)
        half = ops.autocast(m, x)
        # Positions come first here: where the weight needs a gradient, `matmul` folds them into rows, which copies (`should_fold`).
        flat = ops.copy(m, half) if weight.node is not None else half
        kv = ops.copy(m, _projected(m, flat, w_pair, b_pair, hidden, 2 * hidden))
        del half, flat
        k, v = ops.split(m, kv, (kv.numel // 2, kv.numel // 2))
        scores = ops.matmul(m, ops.scale(m, q), k, tower.rows * heads)
        weights = ops.softmax(m, ops.cast(m, scores, 4) if m.autocast else scores, 4 if m.autocast else scores.itemsize)
        mixed = ops.copy(m, ops.matmul(m, weights, v, tower.images * hidden))
        x = residual = apply(m, out, mixed)
        x = parts.layer_norm(m, x, norm, norm_bias, hidden)
        return ops.add(m, residual, parts.mlp(m, x, up, down, act))

    return pooled


def _projected(m: Machine, x: Tensor, weight: Tensor, bias: Tensor, fin: int, fout: int) -> Tensor:
    """`F.linear` with a slice of a weight."""
    out = ops.matmul(m, x, weight, x.numel // fin * fout)
    return ops.add(m, out, ops.autocast(m, bias))
