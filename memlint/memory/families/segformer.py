"""SegFormer: stages of attention whose keys and values are a smaller image, and of MLPs with a convolution inside; over all stages a
decoder that names each pixel's class (transformers 5.24 `models/segformer/modeling_segformer.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import loss, ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.checkpointing import checkpointed
from memlint.memory.convolutions import batch_norm, convolution
from memlint.memory.families import parts
from memlint.memory.families.convnet import Grid
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.families.swin import Norm, norm
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, INT64, Anchor, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture

SIDE = 512
"""`size` of its image processor; nothing in its configuration fixes it."""
SEGMENTS = "semantic_segmentation"

Embedding = Callable[[Machine, Tensor, Grid], Tensor]


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Stages, and the classifier or the decoder; raises `NotUniform` when only some layers are asked for."""
    if layers < b.setup.layers:
        raise NotUniform
    b.enter_layer(-1)
    config, setup = a.config, b.setup
    side, channels = setup.media.image_size or SIDE, int(config.get("num_channels") or 3)
    widths = [int(width) for width in config.get("hidden_sizes") or ()]
    depths = [int(depth) for depth in config.get("depths") or ()]
    path, total = float(config.get("drop_path_rate") or 0.0), sum(depths)
    stages: list[tuple[Embedding, list[Block], Norm]] = []
    sides: list[int] = []
    for level, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        kernel, stride = int(config["patch_sizes"][level]), int(config["strides"][level])
        embedded = _embedding(b, widths[level - 1] if level else channels, width, kernel, stride)
        sides.append(((sides[-1] if sides else side) + 2 * (kernel // 2) - kernel) // stride + 1)
        before = sum(depths[:level])
        rates = [path * (before + index) / max(total - 1, 1) for index in range(depth)]
        stages.append((embedded, [_layer(b, a, level, sides[level], rate) for rate in rates], norm(b, width)))
    segments = setup.objective == SEGMENTS
    decode = _decoder(b, a, widths, sides) if segments else None
    classifier = None if segments else b.linear("classifier", widths[-1], setup.num_labels, bias=True)
    batch: list[Tensor] = []
    """The images, and the classes of their pixels, which it holds as long as the step lasts."""
    states: list[Tensor] = []
    """What each stage gives."""

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.mask = None
        batch[:] = [m.new(m.batch * channels * side * side, setup.weight_itemsize)]
        if segments:
            batch.append(m.new(m.batch * side * side, INT64))
        grid, x = Grid(m.batch, side), batch[0]
        for embedded, blocks, after in stages:
            x = _stage(m, b, x, grid, embedded, blocks, after)
            states.append(x)
            if not segments:
                states.clear()
        return x

    def finish(m: Machine, x: Tensor) -> Tensor:
        if not segments:
            m.named.append(x)
            return ops.mean_last(m, x, x.numel // (m.batch * widths[-1]))
        return x

    def segmented(m: Machine, x: Tensor) -> Tensor:
        assert decode is not None
        m.named += [*states, decode(m, states)]
        states.clear()
        logits = _resized(m, m.named[-1], m.batch * setup.num_labels * side * side)
        return loss.cross_entropy(m, logits, m.batch * side * side)

    head = (lambda m, x: apply(m, classifier, x)) if classifier is not None else None
    stage = Stage(embed, [], finish)
    own = segmented if segments else None
    return Model([stage], head, None, widths[-1], setup.num_labels, causal=False, loss=own, reads_all=True, names_embedding=False)


def _embedding(b: Builder, fin: int, fout: int, kernel: int, stride: int) -> Embedding:
    """`SegformerOverlapPatchEmbeddings`, or `SegformerSequenceReduction` where nothing overlaps."""
    weight, bias = b.parameter("proj", "conv", (fout, fin * kernel * kernel)), b.vector("proj.bias", fout)
    after = norm(b, fout)
    padding = kernel // 2 if kernel != stride else 0
    return lambda m, x, grid: after(m, convolution(m, x, weight, bias, grid.strided(kernel, stride, padding) * fout))


def _stage(m: Machine, b: Builder, x: Tensor, grid: Grid, embedded: Embedding, blocks: list[Block], after: Norm) -> Tensor:
    """`SegformerStage`: its layers are checkpointed; at its end positions become an image again."""
    x = embedded(m, x, grid)
    if x.node is None and m.input_grads and b.setup.checkpointing == "full":
        x = m.tape.leaf(x, Anchor)  # nothing can hook its embeddings
    for block in blocks:
        x = checkpointed(m, b.setup, None, block, x, None, -1) if b.setup.checkpointing == "full" else block(m, x, None)
    m.weights.clear()
    return ops.copy(m, after(m, x))


def _layer(b: Builder, a: Architecture, level: int, side: int, path: float) -> Block:
    """`SegformerLayer`."""
    config = a.config
    width, heads = int(config["hidden_sizes"][level]), int(config["num_attention_heads"][level])
    ratio, inner = int(config["sr_ratios"][level]), int(width * float(config["mlp_ratios"][level]))
    dropout, drop = float(config.get("hidden_dropout_prob") or 0.0), float(config.get("attention_probs_dropout_prob") or 0.0)
    act = str(config.get("hidden_act") or "gelu")
    before = norm(b, width)
    b.parent = "attn"
    q, k, v, out = (b.linear(name, width, width, bias=True) for name in ("q_proj", "k_proj", "v_proj", "o_proj"))
    reduced = _embedding(b, width, width, ratio, ratio) if ratio > 1 else None
    after = norm(b, width)
    b.parent = "mlp"
    up = b.linear("fc1", width, inner, bias=True)
    weight, bias = b.parameter("dwconv", "conv", (inner, 9)), b.vector("dwconv.bias", inner)
    down = b.linear("fc2", inner, width, bias=True)
    keys = (side // ratio) ** 2

    def attention(m: Machine, x: Tensor) -> Tensor:
        query = apply(m, q, x)
        small = reduced(m, x, Grid(m.batch, side)) if reduced is not None else x
        key, value = apply(m, k, small), apply(m, v, small)
        shape = Shape(m.batch, side * side, keys, heads, heads, width // heads, width // heads, drop, causal=False)
        mixed = attend(m, query, key, value, shape)
        return ops.dropout(m, apply(m, out, mixed), dropout)

    def mixed_mlp(m: Machine, x: Tensor) -> Tensor:
        """`SegformerMixMLP`: the convolution's result lies channel by channel, so that the second linear copies it."""
        inner = apply(m, up, x)
        inner = convolution(m, inner, weight, bias, inner.numel)
        inner = ops.dropout(m, parts.activation(m, inner, act), dropout)
        return ops.dropout(m, apply(m, down, ops.copy(m, inner)), dropout)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        x = attention(m, before(m, x))
        x = residual = ops.add(m, ops.drop_path(m, x, path, m.batch), residual)
        x = mixed_mlp(m, after(m, x))
        return ops.add(m, ops.drop_path(m, x, path, m.batch), residual)

    return block


def _decoder(b: Builder, a: Architecture, widths: list[int], sides: list[int]) -> Callable[[Machine, list[Tensor]], Tensor]:
    """`SegformerDecodeHead`: every stage's image in one width and at the first one's size, side by side, makes the classes' scores."""
    config, labels = a.config, b.setup.num_labels
    width, dropout = int(config.get("decoder_hidden_size") or 256), float(config.get("classifier_dropout_prob") or 0.0)
    projections = [b.linear("proj", own, width, bias=True) for own in widths]
    fuse = b.parameter("linear_fuse", "conv", (width, width * len(widths)))
    scale, shift = b.norm("batch_norm", width), b.vector("batch_norm.bias", width)
    weight, bias = b.parameter("classifier", "conv", (labels, width)), b.vector("classifier.bias", labels)

    def decode(m: Machine, states: list[Tensor]) -> Tensor:
        places = m.batch * sides[0] ** 2
        alike = [_resized(m, apply(m, one, ops.copy(m, x)), places * width) for one, x in zip(projections, states, strict=True)]
        x = convolution(m, ops.concat(m, tuple(alike)), fuse, None, places * width)
        x = ops.unary(m, batch_norm(m, x, scale, shift, width), keeps="output")
        return convolution(m, ops.dropout(m, x, dropout), weight, bias, places * labels)

    return decode


def _resized(m: Machine, x: Tensor, numel: int) -> Tensor:
    """`F.interpolate`: keeps nothing but sizes; autocast runs it in float32."""
    x = ops.cast(m, x, FP32) if m.autocast else x
    out = m.new(numel, x.itemsize)
    few, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(few, itemsize),))
