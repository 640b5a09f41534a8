"""Swin transformers, version 2: cosine attention with a position bias that a small network makes, and norms behind each part.

Read in transformers 5.24 `models/swinv2/modeling_swinv2.py`. Only its stages are checkpointed, and attention is written out.
"""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.algebra import divide
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.model import Block, Model
from memlint.memory.families.swin import Norm, Style, assembled, corners, in_windows, norm, windows_of
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, INT64, Tensor
from memlint.models.architecture import Architecture

POSITIONS = 512
"""Width of the network that makes the position bias (`continuous_position_bias_mlp`)."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Swin's stages with these layers."""
    return assembled(b, a, layers, Style(_layer, _merging, checkpoints_layers=False, images=False))


def _merging(b: Builder, width: int, side: int) -> Norm:
    """`Swinv2PatchMerging`: projected first, normalised then."""
    reduction = b.linear("reduction", 4 * width, 2 * width)
    after = norm(b, 2 * width)
    return lambda m, x: after(m, apply(m, reduction, corners(m, x, side, width)))


def _layer(b: Builder, a: Architecture, width: int, heads: int, side: int, shifts: bool, path: float) -> Block:
    """`Swinv2Layer`."""
    config = a.config
    windows = windows_of(a, side, shifts)
    area = windows.area
    inner = int(width * float(config.get("mlp_ratio") or 4.0))
    dropout, drop = float(config.get("hidden_dropout_prob") or 0.0), float(config.get("attention_probs_dropout_prob") or 0.0)
    b.parent = "attn"
    bias = bool(config.get("qkv_bias", True))
    scale = b.vector("logit_scale", heads, "scale")
    spread, gather = b.linear("0", 2, POSITIONS, bias=True), b.linear("2", POSITIONS, heads)
    reach = (2 * int(area**0.5) - 1) ** 2
    table, index = b.buffer(reach * 2, b.setup.weight_itemsize), b.buffer(area * area, INT64)
    q, k, v = b.linear("query", width, width, bias), b.linear("key", width, width), b.linear("value", width, width, bias)
    out = b.linear("dense", width, width, bias=True)
    before = norm(b, width)
    b.parent = "mlp"
    up, down = b.linear("dense", width, inner, bias=True), b.linear("dense", inner, width, bias=True)
    after = norm(b, width)
    act = str(config.get("hidden_act") or "gelu")

    def places(m: Machine) -> Tensor:
        """What each head adds to the scores."""
        x = apply(m, spread, table)
        x = apply(m, gather, _relu_in_place(m, x))
        x = ops.copy(m, ops.gather(m, x, index, area * area * heads))
        return ops.scale(m, ops.unary(m, x, keeps="output"))

    def attention(m: Machine, rows: Tensor) -> Tensor:
        seen = m.new(windows.number * area * area, rows.itemsize) if windows.shifts else None
        query, key, value = (apply(m, projection, rows) for projection in (q, k, v))
        unit, other = _unit(m, query, heads, width), _unit(m, key, heads, width)
        scores = m.batch * windows.number * heads * area * area
        weights = ops.matmul(m, ops.copy(m, ops.autocast(m, unit)), ops.copy(m, ops.autocast(m, other)), scores)
        del unit, other
        factor = ops.unary(m, ops.clamp(m, scale), keeps="output")
        weights = ops.mul(m, weights, factor)
        weights = ops.add(m, weights, places(m))
        if seen is not None:
            weights = ops.add(m, ops.add(m, weights, seen), seen)
        probabilities = (
            ops.softmax(m, ops.cast(m, weights, FP32), FP32) if m.autocast else ops.softmax(m, weights, weights.itemsize)
        )
        probabilities = ops.dropout(m, probabilities, drop)
        mixed = ops.matmul(m, probabilities, ops.copy(m, ops.autocast(m, value)), rows.numel)
        mixed = ops.copy(m, mixed)
        return ops.dropout(m, apply(m, out, mixed), drop)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        shortcut = x
        names = in_windows(m, x, windows, side, width, attention)
        mixed = before(m, names[-1])
        x = ops.add(m, shortcut, ops.drop_path(m, mixed, path, m.batch))
        mixed = after(m, ops.dropout(m, parts.mlp(m, x, up, down, act), dropout))
        return ops.add(m, x, ops.drop_path(m, mixed, path, m.batch))

    return block


def _unit(m: Machine, x: Tensor, heads: int, width: int) -> Tensor:
    """`F.normalize` of each head's vectors (torch 2.13 `nn/functional.py`): the norm is bounded below, spread, and divided by."""
    rows = x.numel // width * heads
    length = ops.clamp(m, ops.vector_norm(m, x, rows))
    return divide(m, x, ops.expand(m, length, x.numel))


def _relu_in_place(m: Machine, x: Tensor) -> Tensor:
    """`nn.ReLU(inplace=True)`: keeps its result, which is its input's memory."""
    numel, itemsize = x.numel, x.itemsize
    out = Tensor(x.storage, numel, itemsize)
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),), (x.storage,))
