"""TimeSformer: each block attends over the frames at one place, then over the places of one frame.

Read in transformers 5.24 `models/timesformer/modeling_timesformer.py` (`divided_space_time`, which the published models have).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory import convolutions, ops
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder import norm_of
from memlint.memory.families.grid import grid_of, side_of
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.families.vision import spread_token
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.tensor import FP32, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import Any


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Embedding, `layers` blocks and a linear on the first position."""
    config, hidden = a.config, a.hidden_size or 768
    if config.get("attention_type", "divided_space_time") != "divided_space_time":
        raise CannotEstimate(f"no memory page for the attention of {a.name}")
    grid, frames = grid_of(config, side_of(config, "image_size", 224), 1), int(config.get("num_frames") or 8)
    b.enter_layer(-1)
    first = b.parameter("cls_token", "token", (hidden,))
    places = b.parameter("position_embeddings", "embedding", (grid.patches + 1, hidden))
    times = b.parameter("time_embeddings", "embedding", (frames, hidden))
    kernel, bias = b.parameter("projection", "conv", (hidden, grid.patch)), b.vector("projection.bias", hidden)
    blocks = [_block(b, config, a, index, grid.patches, frames) for index in range(layers)]
    b.enter_layer(-1)
    norm = norm_of(b, "layernorm", hidden)
    classifier = b.linear("classifier", hidden, b.setup.num_labels, bias=True)
    pixels: list[Tensor] = []

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        images, m.sequence, m.mask = m.batch * frames, grid.patches * frames + 1, None
        pixels[:] = [m.new(images * grid.whole, b.setup.weight_itemsize)]
        x = convolutions.convolution(m, pixels[0], kernel, bias, images * grid.patches * hidden)
        x = ops.add(m, ops.concat(m, (spread_token(m, first, images * hidden), x)), places)
        start = ops.narrow(m, x, m.batch * hidden)
        x = ops.copy(m, ops.narrow(m, x, images * grid.patches * hidden))
        x = ops.add(m, x, times)
        return ops.concat(m, (start, x))

    def classify(m: Machine, x: Tensor) -> Tensor:
        return apply(m, classifier, ops.narrow(m, x, m.batch * hidden))

    return Model([Stage(embed, blocks, norm)], classify, None, hidden, b.setup.num_labels, causal=False, reads_all=True)


def _attention(
    b: Builder, config: Mapping[str, Any], hidden: int, heads: int, name: str
) -> Callable[[Machine, Tensor, int], Tensor]:
    b.parent = name
    fused, out = (
        b.linear("qkv", hidden, 3 * hidden, bool(config.get("qkv_bias", True))),
        b.linear("dense", hidden, hidden, bias=True),
    )
    drop = float(config.get("attention_probs_dropout_prob") or 0.0)
    dropout = float(config.get("hidden_dropout_prob") or 0.0)

    def attention(m: Machine, x: Tensor, length: int) -> Tensor:
        numel = x.numel
        together = apply(m, fused, x)
        q, k, v = (ops.narrow(m, together, numel) for _ in range(3))
        del together
        scores = numel // hidden * heads * length
        weights = ops.scale(m, ops.matmul(m, ops.copy(m, q), ops.copy(m, k), scores))
        itemsize = FP32 if m.autocast else weights.itemsize
        weights = ops.dropout(m, ops.softmax(m, ops.cast(m, weights, itemsize), itemsize), drop)
        mixed = ops.copy(m, ops.matmul(m, weights, ops.copy(m, ops.autocast(m, v)), numel))
        return ops.dropout(m, apply(m, out, mixed), dropout)

    return attention


def _block(b: Builder, config: Mapping[str, Any], a: Architecture, index: int, patches: int, frames: int) -> Block:
    b.enter_layer(index)
    hidden, heads = a.hidden_size or 768, a.heads or 12
    inner, act = a.intermediate_size or 4 * hidden, a.activation or "gelu"
    dropout = float(config.get("hidden_dropout_prob") or 0.0)
    spatial = _attention(b, config, hidden, heads, "attention")
    b.parent = "mlp"
    up, down = b.linear("intermediate.dense", hidden, inner, bias=True), b.linear("output.dense", inner, hidden, bias=True)
    before, after = norm_of(b, "layernorm_before", hidden), norm_of(b, "layernorm_after", hidden)
    temporal_norm, temporal = norm_of(b, "temporal_layernorm", hidden), _attention(b, config, hidden, heads, "temporal_attention")
    temporal_dense = b.linear("temporal_dense", hidden, hidden, bias=True)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        few = m.batch * hidden
        body = x.numel - few
        moments = ops.copy(m, ops.narrow(m, x, body))
        seen = temporal(m, temporal_norm(m, moments), frames)
        over_time = apply(m, temporal_dense, seen)
        moments = ops.add(m, ops.narrow(m, x, body), over_time)
        start = ops.narrow(m, x, few)
        pictures = ops.concat(m, (ops.spread(m, start, few * frames), ops.copy(m, moments)))
        mixed = spatial(m, before(m, pictures), patches + 1)
        mean = ops.mean_last(m, ops.narrow(m, mixed, few * frames), frames)
        rest = ops.copy(m, ops.narrow(m, mixed, body))
        x = ops.add(m, ops.concat(m, (start, moments)), ops.concat(m, (mean, rest)))
        fed = after(m, x)
        fed = ops.dropout(m, parts.activation(m, apply(m, up, fed), act), dropout)
        fed = ops.dropout(m, apply(m, down, fed), dropout)
        return ops.add(m, x, fed)

    return block
