"""EfficientNet: inverted bottlenecks with squeeze and excitation (transformers 5.24 `models/efficientnet/modeling_efficientnet.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.convolutions import batch_norm, convolution
from memlint.memory.families import parts
from memlint.memory.families.convnet import Grid, Layer, chain, classifying
from memlint.memory.families.model import Model
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture
from memlint.typed import NamedTuple

STEM, TOP = 32, 1280
"""Widths of the first and the last convolution, before they are scaled (`EfficientNetEmbeddings`, `EfficientNetEncoder`)."""
KINDS = ("in_channels", "out_channels", "strides", "kernel_sizes", "expand_ratios", "num_block_repeats")


class Sizes(NamedTuple):
    """Of a block."""

    fin: int
    fout: int
    stride: int
    kernel: int
    inner: int
    padding: int
    """What a strided block adds to the side of its images."""
    residual: bool
    drop: float


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """All blocks, the mean over positions and the classifier; raises `NotUniform` when only some are asked for."""
    if layers < b.setup.layers:
        raise NotUniform
    b.enter_layer(-1)
    config = a.config
    act = str(config.get("hidden_act") or "swish")
    channels, first, last = int(config.get("num_channels") or 3), _scaled(a, STEM), _scaled(a, TOP)
    stem = chain([_padded(1), _convolved(b, channels, first, 3, act, stride=2)])
    sizes = list(_blocks(a))
    blocks = [_block(b, size, float(config.get("squeeze_expansion_ratio") or 0.25), act) for size in sizes]
    body = chain([*blocks, _convolved(b, sizes[-1].fout, last, 1, act)])

    def pooled(m: Machine, x: Tensor) -> Tensor:
        x = ops.average_pool(m, x, x.numel // (m.batch * last))
        return ops.dropout(m, x, float(config.get("dropout_rate") or 0.0))

    return classifying(b, a, stem, body, last, pooled)


def _scaled(a: Architecture, width: int) -> int:
    """`round_filters`: times the width's coefficient, to the nearest multiple that is not much below it."""
    divisor, wanted = int(a.config.get("depth_divisor") or 8), width * float(a.config.get("width_coefficient") or 1.0)
    rounded = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * wanted else rounded


def _blocks(a: Architecture) -> Iterator[Sizes]:
    """`EfficientNetEncoder`: kinds of blocks, each repeated; the first of a kind changes width and side."""
    config = a.config
    depth, drop = float(config.get("depth_coefficient") or 1.0), float(config.get("drop_connect_rate") or 0.0)
    kinds = list(zip(*(config.get(key) or () for key in KINDS), strict=True))
    total, count = sum(ceil(depth * repeats) for *_, repeats in kinds), 0
    for fin, fout, stride, kernel, ratio, repeats in kinds:
        before, width = _scaled(a, fin), _scaled(a, fout)
        for place in range(ceil(depth * repeats)):
            padding = kernel // 2 * 2 - (count not in (config.get("depthwise_padding") or ()))
            own = before if not place else width
            yield Sizes(own, width, 1 if place else stride, kernel, ratio * own, padding, place > 0, drop * count / total)
            count += 1


def _padded(more: int) -> Layer:
    """`nn.ZeroPad2d` on two sides, or more on one than on the other."""

    def run(m: Machine, x: Tensor, grid: Grid) -> Tensor:
        width = x.numel // grid.positions
        grid.side += more
        return ops.pad(m, x, grid.positions * width)

    return run


def _convolved(b: Builder, fin: int, fout: int, kernel: int, act: str, stride: int = 1, groups: int = 1) -> Layer:
    """Convolution without bias, batch normalisation, activation (where there is one)."""
    weight = b.parameter("conv", "conv", (fout, fin // groups * kernel * kernel))
    scale, shift = b.norm("bn", fout), b.vector("bn.bias", fout)

    def run(m: Machine, x: Tensor, grid: Grid) -> Tensor:
        x = convolution(m, x, weight, None, grid.strided(kernel, stride, kernel // 2 if stride == 1 else 0) * fout)
        x = batch_norm(m, x, scale, shift, fout)
        return parts.activation(m, x, act) if act else x

    return run


def _block(b: Builder, sizes: Sizes, squeeze: float, act: str) -> Layer:
    """`EfficientNetBlock`."""
    fin, inner = sizes.fin, sizes.inner
    layers = [_convolved(b, fin, inner, 1, act)] if inner != fin else []
    layers += [_padded(sizes.padding)] if sizes.stride == 2 else []
    layers.append(_convolved(b, inner, inner, sizes.kernel, act, sizes.stride, groups=inner))
    layers.append(_excited(b, inner, max(1, int(fin * squeeze)), act))
    layers.append(_convolved(b, inner, sizes.fout, 1, ""))
    run = chain(layers)

    def block(m: Machine, x: Tensor, grid: Grid) -> Tensor:
        out = run(m, x, grid)
        if sizes.residual and sizes.stride == 1:
            out = ops.add(m, ops.dropout(m, out, sizes.drop), x)
        return out

    return block


def _excited(b: Builder, width: int, narrow: int, act: str) -> Layer:
    """`EfficientNetSqueezeExciteLayer`: each channel is scaled by what two convolutions make of the means of all."""
    reduce, reduce_bias = b.parameter("reduce", "conv", (narrow, width)), b.vector("reduce.bias", narrow)
    expand, expand_bias = b.parameter("expand", "conv", (width, narrow)), b.vector("expand.bias", width)

    def run(m: Machine, x: Tensor, grid: Grid) -> Tensor:
        means = ops.mean_last(m, x, grid.side * grid.side)
        gate = parts.activation(m, convolution(m, means, reduce, reduce_bias, grid.images * narrow), act)
        gate = convolution(m, gate, expand, expand_bias, grid.images * width)
        return ops.mul(m, x, ops.unary(m, gate, keeps="output"))

    return run
