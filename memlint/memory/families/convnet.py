"""Convolutional image classifiers: ResNet, ConvNeXt and ConvNeXt V2 (transformers 5.24 `models/<type>/modeling_<type>.py`).

None of them can be checkpointed, so all of their layers run in one go. Nothing in their configurations fixes the side of an image; where
the run does not state it either, it is that of their processors.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.convolutions import batch_norm, convolution, max_pool
from memlint.memory.families import parts
from memlint.memory.families.model import Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture

SIDE = 224
"""`size` of the image processors of all three."""


class Grid:
    """The images of a step as they go through: how many positions one has."""

    def __init__(self, images: int, side: int) -> None:
        self.images = images
        self.side = side

    @property
    def positions(self) -> int:
        """Of all images."""
        return self.images * self.side * self.side

    def strided(self, kernel: int, stride: int, padding: int) -> int:
        """Positions behind a convolution or a pooling."""
        self.side = (self.side + 2 * padding - kernel) // stride + 1
        return self.positions


Layer = Callable[[Machine, Tensor, Grid], Tensor]


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """All layers, the mean over positions and the classifier; raises `NotUniform` when only some are asked for."""
    if layers < b.setup.layers:
        raise NotUniform
    b.enter_layer(-1)
    widths = [int(width) for width in a.config.get("hidden_sizes") or ()]
    stem, body = _resnet(b, a, widths) if a.model_type == "resnet" else _convnext(b, a, widths)
    final = None if a.model_type == "resnet" else _norm(b, "layernorm", widths[-1])

    def pooled(m: Machine, x: Tensor) -> Tensor:
        x = ops.mean_last(m, x, x.numel // (m.batch * widths[-1]))
        return final(m, x) if final is not None else x

    return classifying(b, a, stem, body, widths[-1], pooled)


def classifying(
    b: Builder, a: Architecture, stem: Layer, body: Layer, width: int, pooled: Callable[[Machine, Tensor], Tensor]
) -> Model:
    """The layers, what is made of their positions, and a linear on that."""
    labels = b.setup.num_labels
    classifier = b.linear("classifier", width, labels, bias=True)
    channels = int(a.config.get("num_channels") or 3)
    batch: list[Tensor] = []
    """The images, which it holds as long as the step lasts."""

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        grid = Grid(m.batch, b.setup.media.image_size or int(a.config.get("image_size") or SIDE))
        m.mask = None
        batch[:] = [m.new(grid.positions * channels, b.setup.weight_itemsize)]
        embedded = stem(m, batch[0], grid)
        x = body(m, embedded, grid)
        m.named.append(x)
        return x

    head = lambda m, x: apply(m, classifier, x)  # noqa: E731
    return Model([Stage(embed, [], pooled)], head, None, width, labels, causal=False, reads_all=True, names_embedding=False)


def _norm(b: Builder, name: str, width: int) -> Callable[[Machine, Tensor], Tensor]:
    weight, bias = b.norm(name, width), b.vector(f"{name}.bias", width)
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


def chain(layers: list[Layer]) -> Layer:
    """One after the other."""

    def run(m: Machine, x: Tensor, grid: Grid) -> Tensor:
        for layer in layers:
            x = layer(m, x, grid)
        return x

    return run


def _resnet(b: Builder, a: Architecture, widths: list[int]) -> tuple[Layer, Layer]:
    """`ResNetModel`: its embedder, a strided convolution and a pooling; then stages whose layers have two or three convolutions."""
    config = a.config
    first = int(config.get("embedding_size") or 64)
    stem = chain([_conv_norm(b, int(config.get("num_channels") or 3), first, 7, 2), _pooled(first)])
    layers = []
    narrow = 4 if config.get("layer_type", "bottleneck") == "bottleneck" else 0
    for stage, (width, depth) in enumerate(zip(widths, config.get("depths") or (), strict=True)):
        for index in range(int(depth)):
            stride = (2 if stage or config.get("downsample_in_first_stage") else 1) if not index else 1
            strides = (stride, 1) if config.get("downsample_in_bottleneck") else (1, stride)
            layers.append(_residual(b, first if not index else width, width, stride, narrow, strides))
        first = width
    return stem, chain(layers)


def _pooled(width: int) -> Layer:
    return lambda m, x, grid: max_pool(m, x, grid.strided(3, 2, 1) * width)


def _conv_norm(b: Builder, fin: int, fout: int, kernel: int, stride: int, relu: bool = True) -> Layer:
    """`ResNetConvLayer`."""
    weight = b.parameter("convolution", "conv", (fout, fin * kernel * kernel))
    scale, shift = b.norm("normalization", fout), b.vector("normalization.bias", fout)

    def run(m: Machine, x: Tensor, grid: Grid) -> Tensor:
        x = convolution(m, x, weight, None, grid.strided(kernel, stride, kernel // 2) * fout)
        x = batch_norm(m, x, scale, shift, fout)
        return ops.unary(m, x, keeps="output") if relu else x

    return run


def _residual(b: Builder, fin: int, fout: int, stride: int, narrow: int, strides: tuple[int, int]) -> Layer:
    """`ResNetBottleNeckLayer`, or `ResNetBasicLayer` where nothing is `narrow`."""
    shortcut = _conv_norm(b, fin, fout, 1, stride, relu=False) if fin != fout or stride != 1 else None
    if narrow:
        inner = fout // narrow
        run = chain(
            [
                _conv_norm(b, fin, inner, 1, strides[0]),
                _conv_norm(b, inner, inner, 3, strides[1]),
                _conv_norm(b, inner, fout, 1, 1, relu=False),
            ]
        )
    else:
        run = chain([_conv_norm(b, fin, fout, 3, stride), _conv_norm(b, fout, fout, 3, 1, relu=False)])

    def layer(m: Machine, x: Tensor, grid: Grid) -> Tensor:
        before = Grid(grid.images, grid.side)
        residual = x
        x = run(m, x, grid)
        if shortcut is not None:
            residual = shortcut(m, residual, before)
        x = ops.add_in_place(m, x, residual)
        return ops.unary(m, x, keeps="output")

    return layer


def _convnext(b: Builder, a: Architecture, widths: list[int]) -> tuple[Layer, Layer]:
    """`ConvNextModel`: its embeddings; then stages of depthwise convolutions and MLPs, each behind a norm and a strided convolution."""
    config, patch = a.config, int(a.config.get("patch_size") or 4)
    stem = chain([_strided(b, int(config.get("num_channels") or 3), widths[0], patch), _normed(b, widths[0])])
    layers: list[Layer] = []
    path, count, total = float(config.get("drop_path_rate") or 0.0), 0, sum(config.get("depths") or ())
    for stage, (width, depth) in enumerate(zip(widths, config.get("depths") or (), strict=True)):
        if stage:
            layers += [_normed(b, widths[stage - 1]), _strided(b, widths[stage - 1], width, 2)]
        for _ in range(int(depth)):
            layers.append(_convnext_layer(b, a, width, path * count / max(total - 1, 1)))
            count += 1
    return stem, chain(layers)


def _strided(b: Builder, fin: int, fout: int, size: int) -> Layer:
    weight, bias = b.parameter("conv", "conv", (fout, fin * size * size)), b.vector("conv.bias", fout)
    return lambda m, x, grid: convolution(m, x, weight, bias, grid.strided(size, size, 0) * fout)


def _normed(b: Builder, width: int) -> Layer:
    norm = _norm(b, "layernorm", width)
    return lambda m, x, grid: norm(m, x)


def _convnext_layer(b: Builder, a: Architecture, width: int, path: float) -> Layer:
    weight, bias = b.parameter("dwconv", "conv", (width, 49)), b.vector("dwconv.bias", width)
    norm = _norm(b, "layernorm", width)
    up, down = b.linear("pwconv1", width, 4 * width, bias=True), b.linear("pwconv2", 4 * width, width, bias=True)
    second = a.model_type == "convnextv2"
    grn = (b.vector("grn.weight", 4 * width, "scale"), b.vector("grn.bias", 4 * width)) if second else None
    scale = None if second or not a.config.get("layer_scale_init_value", 1e-6) else b.vector("layer_scale", width, "scale")
    act = a.activation or "gelu"

    def layer(m: Machine, x: Tensor, grid: Grid) -> Tensor:
        residual = x
        x = convolution(m, x, weight, bias, x.numel)
        x = parts.activation(m, apply(m, up, norm(m, x)), act)
        if grn is not None:
            x = _response_norm(m, x, *grn, grid.images, 4 * width)
        x = apply(m, down, x)
        if scale is not None:
            x = ops.mul(m, scale, x)
        return ops.add(m, residual, ops.drop_path(m, x, path, grid.images))

    return layer


def _response_norm(m: Machine, x: Tensor, weight: Tensor, bias: Tensor, images: int, width: int) -> Tensor:
    """`ConvNextV2GRN`: each channel's norm over the positions of an image, relative to the mean of all channels."""
    norms = ops.vector_norm(m, x, images * width)
    relative = ops.mul(m, norms, ops.shift(m, ops.mean_last(m, norms, width)))
    return ops.add(m, ops.add(m, ops.mul(m, weight, ops.mul(m, x, relative)), bias), x)
