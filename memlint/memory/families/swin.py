"""Swin transformers: attention within windows, shifted in every second layer, over stages that halve the image's side.

Read in transformers 5.24 `models/swin/modeling_swin.py`. Stages and, within them, layers are checkpointed.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.checkpointing import checkpointed, run
from memlint.memory.convolutions import convolution
from memlint.memory.families import parts
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import INT64, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture
from memlint.typed import NamedTuple

Norm = Callable[[Machine, Tensor], Tensor]


class Style(NamedTuple):
    """What differs between the two versions."""

    layer: Callable[[Builder, Architecture, int, int, int, bool, float], Block]
    """(builder, architecture, width, heads, side, whether it shifts, its rate of stochastic depth) -> a layer."""
    merging: Callable[[Builder, int, int], Norm]
    """(builder, width, side) -> what follows on a stage."""
    checkpoints_layers: bool
    """Layers are checkpointed as well as the stages around them."""
    images: bool
    """The encoder makes its states an image after each stage, whether that is asked for or not; else a name of it holds what they were
    before they were merged."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Swin itself."""
    return assembled(b, a, layers, Style(_layer, _merging, checkpoints_layers=True, images=True))


def assembled(b: Builder, a: Architecture, layers: int, style: Style) -> Model:
    """Patches, stages, the mean over positions and the classifier; raises `NotUniform` when only some layers are asked for."""
    if layers < b.setup.layers:
        raise NotUniform
    config, setup = a.config, b.setup
    depths = [int(depth) for depth in config.get("depths") or ()]
    heads = [int(count) for count in config.get("num_heads") or ()]
    width, patch = int(config.get("embed_dim") or 96), int(config.get("patch_size") or 4)
    channels = int(config.get("num_channels") or 3)
    pixels = setup.media.image_size or int(config.get("image_size") or 224)
    side = pixels // patch
    b.enter_layer(-1)
    weight, bias = b.parameter("projection", "conv", (width, channels * patch * patch)), b.vector("projection.bias", width)
    first = norm(b, width)
    places = (
        b.parameter("position_embeddings", "embedding", (side * side, width)) if config.get("use_absolute_embeddings") else None
    )
    path, count, total = float(config.get("drop_path_rate") or 0.0), 0, sum(depths)
    stages, unmerged = [], list[Tensor]()
    for level, depth in enumerate(depths):
        blocks = []
        for index in range(depth):
            rate = path * count / max(total - 1, 1)
            blocks.append(style.layer(b, a, width << level, heads[level], side, index % 2 == 1, rate))
            count += 1
        merge = style.merging(b, width << level, side) if level < len(depths) - 1 else None
        stages.append(_stage(b, blocks, merge, style, unmerged))
        side = -(-side // 2)
    last = width << (len(depths) - 1)
    final = norm(b, last)
    classifier = b.linear("classifier", last, setup.num_labels, bias=True)
    batch: list[Tensor] = []
    """The images, which it holds as long as the step lasts."""

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.mask = None
        batch[:] = [m.new(m.batch * channels * pixels * pixels, setup.weight_itemsize)]
        x = first(m, convolution(m, batch[0], weight, bias, m.batch * (pixels // patch) ** 2 * width))
        x = embedded = ops.add(m, x, places) if places is not None else x
        spatial = None
        for stage in stages:
            if setup.checkpointing == "full":
                x = checkpointed(m, setup, None, stage, x, None, -1)
            else:
                x = run(m, stage, x, None)
            del spatial
            spatial = m.new(x.numel, x.itemsize) if style.images else None
        del embedded, spatial
        unmerged.clear()
        m.weights.clear()
        return x

    def finish(m: Machine, x: Tensor) -> Tensor:
        x = final(m, x)
        m.named.append(x)
        return ops.mean_last(m, x, x.numel // (m.batch * last))

    head = lambda m, x: apply(m, classifier, x)  # noqa: E731
    return Model(
        [Stage(embed, [], finish)], head, None, last, setup.num_labels, causal=False, reads_all=True, names_embedding=False
    )


def norm(b: Builder, width: int) -> Norm:
    """`nn.LayerNorm`."""
    weight, bias = b.norm("layernorm", width), b.vector("layernorm.bias", width)
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


def _stage(b: Builder, blocks: list[Block], merge: Norm | None, style: Style, unmerged: list[Tensor]) -> Block:
    setup = b.setup
    checkpoints = style.checkpoints_layers and setup.checkpointing == "full"

    def stage(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        for block in blocks:
            x = checkpointed(m, setup, None, block, x, None, -1) if checkpoints else block(m, x, None)
        if not style.images and m.tape.running is None:
            unmerged[:] = [x]
        return merge(m, x) if merge is not None else x

    return stage


def _merging(b: Builder, width: int, side: int) -> Norm:
    """`SwinPatchMerging`: four neighbours side by side, normalised and projected to twice the width."""
    reduction = b.linear("reduction", 4 * width, 2 * width)
    before = norm(b, 4 * width)
    return lambda m, x: apply(m, reduction, before(m, corners(m, x, side, width)))


def corners(m: Machine, x: Tensor, side: int, width: int) -> Tensor:
    """Each four neighbours side by side."""
    even = side + side % 2
    if even != side:
        x = ops.pad(m, x, m.batch * even * even * width)
    half, quarter = x.numel // 2, x.numel // 4
    parts = tuple(ops.narrow(m, ops.narrow(m, x, half), quarter) for _ in range(4))
    return ops.concat(m, parts)


class Windows(NamedTuple):
    """Of a layer."""

    area: int
    """Positions of one."""
    number: int
    """Of those of an image."""
    padded: int
    """The image's side, rounded up to whole ones."""
    shifts: bool


def windows_of(a: Architecture, side: int, shifts: bool) -> Windows:
    """They are no larger than the image, and shifted only where they are smaller."""
    size = min(int(a.config.get("window_size") or 7), side)
    across = -(-side // size)
    return Windows(size * size, across * across, across * size, shifts and side > size)


def in_windows(m: Machine, x: Tensor, windows: Windows, side: int, width: int, attention: Norm) -> tuple[Tensor, ...]:
    """`attention` over the windows of an image, which is padded, shifted and cut up for it, and put together again: what names of the
    layer may hold to its end (the shifted image, its windows, what attention made of them, the image of that), and the result."""
    numel = x.numel
    x = ops.copy(m, x) if windows.padded == side else ops.pad(m, x, m.batch * windows.padded**2 * width)
    shifted = ops.copy(m, x) if windows.shifts else x
    rows = ops.copy(m, shifted)
    mixed = attention(m, rows)
    result = whole = ops.copy(m, mixed)
    if windows.shifts:
        result = ops.copy(m, whole)
    if windows.padded != side:
        result = ops.copy(m, ops.narrow(m, result, numel))
    return shifted, rows, mixed, whole, result


def _layer(b: Builder, a: Architecture, width: int, heads: int, side: int, shifts: bool, path: float) -> Block:
    """`SwinLayer`."""
    config = a.config
    windows = windows_of(a, side, shifts)
    area, head_dim = windows.area, width // heads
    inner = int(width * float(config.get("mlp_ratio") or 4.0))
    dropout, drop = float(config.get("hidden_dropout_prob") or 0.0), float(config.get("attention_probs_dropout_prob") or 0.0)
    b.parent = "attn"
    bias = bool(config.get("qkv_bias", True))
    q, k, v = (b.linear(name, width, width, bias) for name in ("q_proj", "k_proj", "v_proj"))
    out = b.linear("o_proj", width, width, bias=True)
    reach = 2 * int(config.get("window_size") or 7) - 1
    table = b.parameter("relative_position_bias_table", "embedding", (reach * reach, heads))
    index = b.buffer(area * area, INT64)
    before, after = norm(b, width), norm(b, width)
    b.parent = "mlp"
    up, down = b.linear("fc1", width, inner, bias=True), b.linear("fc2", inner, width, bias=True)
    act = str(config.get("hidden_act") or "gelu")

    def attention(m: Machine, x: Tensor) -> Tensor:
        seen = m.new(windows.number * area * area, x.itemsize) if windows.shifts else None
        query, key, value = (apply(m, projection, x) for projection in (q, k, v))
        places = ops.copy(m, ops.gather(m, table, index, area * area * heads))
        if seen is not None:
            wide = m.new(m.batch * windows.number * area * area, seen.itemsize)
            combined = Tensor(wide.storage, m.batch * windows.number * heads * area * area, wide.itemsize)
            places = ops.add(m, places, combined)
            del wide, combined
        shape = Shape(m.batch * windows.number, area, area, heads, heads, head_dim, head_dim, drop, causal=False)
        mixed = attend(m, query, key, value, shape, places)
        del query, key, value
        return ops.dropout(m, apply(m, out, mixed), dropout)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        shortcut = x
        names = list(in_windows(m, before(m, x), windows, side, width, attention))
        del names[3], names[0]
        x = ops.add(m, shortcut, ops.drop_path(m, names[-1], path, m.batch))
        residual = x
        x = parts.mlp(m, after(m, x), up, down, act)
        return ops.add(m, ops.dropout(m, x, dropout), residual)

    return block
