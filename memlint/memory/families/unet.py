"""The U-Net of Stable Diffusion 1.x, 2.x and XL (`UNet2DConditionModel`).

Read in diffusers 0.42 `models/unets/unet_2d_condition.py`, `unet_2d_blocks.py`, `models/resnet.py`, `models/transformers/transformer_2d.py`
and `models/attention.py`. Latents and text conditions are computed beforehand; checkpointing is around each residual block and each
transformer block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.autograd import alias
from memlint.memory.build import Builder
from memlint.memory.checkpointing import checkpointed, run
from memlint.memory.convolutions import convolution
from memlint.memory.families import parts
from memlint.memory.families.dit import squared_error
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Anchor, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import Any

GROUPS = 32
WIDTHS = (320, 640, 1280, 1280)
DOWN = ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D")
UP = ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")
"""Defaults of the class."""
PIXELS = 8
"""Pixels of a side that the autoencoder makes one of."""

Step = Callable[[Machine, Tensor], Tensor]


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Down, through the middle and up again, what went down being put beside what comes up."""
    config = a.config
    b.enter_layer(-1)
    widths = [int(width) for width in config.get("block_out_channels") or WIDTHS]
    levels = len(widths)
    channels = int(config.get("in_channels") or 4)
    time = 4 * widths[0]
    depth = int(config.get("layers_per_block") or 2)
    heads = _each(config.get("num_attention_heads") or config.get("attention_head_dim") or 8, levels)
    inside = _each(config.get("transformer_layers_per_block") or 1, levels)
    text_width = int(config.get("cross_attention_dim") or 1280)
    net = _Net(b, time, text_width, bool(config.get("use_linear_projection")))
    first = net.conv(channels, widths[0])
    embedders = [b.linear("linear_1", widths[0], time, bias=True), b.linear("linear_2", time, time, bias=True)]
    added = int(config.get("projection_class_embeddings_input_dim") or 0)
    adders = [b.linear("linear_1", added, time, bias=True), b.linear("linear_2", time, time, bias=True)] if added else []

    down: list[tuple[list[Step], Step | None]] = []
    before = widths[0]
    for level, kind in enumerate(config.get("down_block_types") or DOWN):
        width = widths[level]
        steps = []
        for _ in range(depth):
            looks = inside[level] if kind.startswith("CrossAttn") else 0
            steps.append(_chain([net.residual(before, width), *net.transformer(width, heads[level], looks)]))
            before = width
        down.append((steps, net.conv(width, width, stride=2) if level < levels - 1 else None))
    middle = _chain(
        [net.residual(before, before, plain=True), *net.transformer(before, heads[-1], inside[-1]), net.residual(before, before)]
    )
    up: list[tuple[list[Step], Step | None]] = []
    for place, kind in enumerate(config.get("up_block_types") or UP):
        level = levels - 1 - place
        width, below = widths[level], widths[max(level - 1, 0)]
        steps = []
        for index in range(depth + 1):
            skipped = below if index == depth else width
            looks = inside[level] if kind.startswith("CrossAttn") else 0
            steps.append(_chain([net.residual(before + skipped, width), *net.transformer(width, heads[level], looks)]))
            before = width
        up.append((steps, net.upsampled(width) if level else None))
    norm, last = net.group_norm(widths[0]), net.conv(widths[0], int(config.get("out_channels") or 4))

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        media, itemsize = b.setup.media, b.setup.weight_itemsize
        side = media.image_size // PIXELS or int(config.get("sample_size") or 64)
        m.mask = None
        given[:] = [
            m.new(m.batch * channels * side * side, itemsize),
            m.new(m.batch * (media.text_tokens or 77) * text_width, itemsize),
        ]
        emb = apply(m, embedders[1], ops.unary(m, apply(m, embedders[0], m.new(m.batch * widths[0], itemsize))))
        if adders:
            pooled = m.new(m.batch * added, emb.itemsize)
            emb = ops.add(m, emb, apply(m, adders[1], ops.unary(m, apply(m, adders[0], pooled))))
            del pooled
        m.shared = [emb, given[1]]
        del emb
        x = first(m, given[0])
        skips = [x]
        for steps, shrink in down:
            sample = x  # the caller's variable
            for step in steps:
                x = step(m, x)
                skips.append(x)
            if shrink is not None:
                x = shrink(m, x)
                skips.append(x)
        sample = x
        x = middle(m, x)
        for steps, grow in up:
            sample, beside = x, skips[-len(steps) :]
            del skips[-len(steps) :]
            for step, skip in zip(steps, reversed(beside), strict=True):
                x = ops.concat(m, (x, skip))
                x = step(m, x)
            if grow is not None:
                x = grow(m, x)
            del beside
        del sample
        return x

    def finish(m: Machine, x: Tensor) -> Tensor:
        m.shared = []
        x = norm(m, x)
        return last(m, ops.unary(m, x))

    given: list[Tensor] = []
    """Latents and text states, which the batch holds as long as the step lasts."""
    return Model([Stage(embed, [], finish)], None, None, widths[0], 0, causal=False, loss=squared_error, names_embedding=False)


def _each(value: Any, levels: int) -> list[int]:
    """A number for each level, given once or one by one."""
    return [int(v) for v in value] if isinstance(value, Sequence) else [int(value)] * levels


def _chain(steps: list[Step]) -> Step:
    def chained(m: Machine, x: Tensor) -> Tensor:
        for step in steps:
            x = step(m, x)
        return x

    return chained


class _Net:
    """Makes the parts of one U-Net, which share the width of the time embedding and of the text."""

    def __init__(self, b: Builder, time: int, text: int, linear: bool) -> None:
        self.b = b
        self.time = time
        self.text = text
        self.linear = linear
        """Transformers project by linear layers, not by convolutions."""

    def conv(self, fin: int, fout: int, size: int = 3, stride: int = 1) -> Step:
        """A convolution that keeps the grid but for its stride."""
        weight, bias = self.b.parameter("conv", "conv", (fout, fin * size * size)), self.b.vector("conv.bias", fout)
        return lambda m, x: convolution(m, x, weight, bias, x.numel // fin // stride**2 * fout)

    def group_norm(self, width: int) -> Step:
        weight, bias = self.b.norm("norm", width), self.b.vector("norm.bias", width)
        return lambda m, x: ops.layer_norm(m, x, weight, bias, width, groups=m.batch * GROUPS)

    def upsampled(self, width: int) -> Step:
        """`Upsample2D`: every position four times, then a convolution."""
        conv = self.conv(width, width)

        def step(m: Machine, x: Tensor) -> Tensor:
            return conv(m, ops.spread(m, x, 4 * x.numel))

        return step

    def block(self, block: Block, since: int) -> Step:
        """Checkpointed where the run says so; its parameters are those made since there were that many."""
        setup = self.b.setup
        trained = any(parameter.node is not None for parameter in self.b.parameters[since:])

        def step(m: Machine, x: Tensor) -> Tensor:
            if setup.checkpointing == "full":
                if trained and x.node is None and not setup.reentrant:
                    x = m.tape.leaf(alias(x), Anchor)
                return checkpointed(m, setup, None, block, x, None, -1)
            return run(m, block, x, None)

        return step

    def residual(self, fin: int, fout: int, plain: bool = False) -> Step:
        """`ResnetBlock2D`; the first one of the middle is `plain`, not checkpointed."""
        since = len(self.b.parameters)
        norms = [self.group_norm(fin)]
        convs = [self.conv(fin, fout)]
        time = self.b.linear("time_emb_proj", self.time, fout, bias=True)
        norms.append(self.group_norm(fout))
        convs.append(self.conv(fout, fout))
        shortcut = self.conv(fin, fout, 1) if fin != fout else None

        def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
            residual = x
            x = norms[0](m, x)
            x = ops.unary(m, x)
            x = convs[0](m, x)
            x = ops.add(m, x, apply(m, time, ops.unary(m, m.shared[0])))
            x = norms[1](m, x)
            x = ops.unary(m, x)
            x = convs[1](m, x)
            if shortcut is not None:
                residual = shortcut(m, residual)
            return ops.scale(m, ops.add(m, residual, x))

        return (lambda m, x: run(m, block, x, None)) if plain else self.block(block, since)

    def transformer(self, width: int, heads: int, count: int) -> list[Step]:
        """`Transformer2DModel` of `count` blocks; none of it for 0."""
        if not count:
            return []
        norm = self.group_norm(width)
        into = self._projection("proj_in", width)
        blocks = [self._attending(width, heads) for _ in range(count)]
        out = self._projection("proj_out", width)

        def step(m: Machine, x: Tensor) -> Tensor:
            residual = x
            x = norm(m, x)
            if self.linear and m.batch > 1:  # rows of different samples, seen channel by channel, are no matrix
                x = ops.copy(m, ops.autocast(m, x))
            x = into(m, x)
            for block in blocks:
                x = block(m, x)
            x = ops.copy(m, out(m, x)) if self.linear else out(m, ops.copy(m, x))
            return ops.add(m, x, residual)

        return [step]

    def _projection(self, name: str, width: int) -> Step:
        if not self.linear:
            return self.conv(width, width, 1)
        linear = self.b.linear(name, width, width, bias=True)
        return lambda m, x: apply(m, linear, x)

    def _attending(self, width: int, heads: int) -> Step:
        """`BasicTransformerBlock`: to itself, to the text, a gated MLP."""
        b = self.b
        since = len(b.parameters)
        norms = []
        attentions = []
        for source in (width, self.text):
            norms.append((b.norm("norm", width), b.vector("norm.bias", width)))
            attentions.append(self._attention(width, source, heads))
        norms.append((b.norm("norm3", width), b.vector("norm3.bias", width)))
        b.parent = "net"
        up, down = b.linear("proj", width, 8 * width, bias=True), b.linear("2", 4 * width, width, bias=True)

        def normed(m: Machine, x: Tensor, index: int) -> Tensor:
            return parts.layer_norm(m, x, *norms[index], width)

        def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
            rows = normed(m, x, 0)
            mixed = attentions[0](m, rows, rows)
            x = ops.add(m, mixed, x)
            rows = normed(m, x, 1)
            mixed = attentions[1](m, rows, m.shared[1])
            x = ops.add(m, mixed, x)
            rows = normed(m, x, 2)
            both = apply(m, up, rows)
            half, gate = ops.split(m, both, (both.numel // 2, both.numel // 2))
            del both
            fed = ops.mul(m, half, ops.unary(m, gate))
            del half, gate
            return ops.add(m, apply(m, down, fed), x)

        return self.block(block, since)

    def _attention(self, width: int, source: int, heads: int) -> Callable[[Machine, Tensor, Tensor], Tensor]:
        """`AttnProcessor2_0`."""
        b = self.b
        b.parent = "attn"
        q, k, v = b.linear("to_q", width, width), b.linear("to_k", source, width), b.linear("to_v", source, width)
        b.parent = "to_out"
        out = b.linear("0", width, width, bias=True)
        head_dim = width // heads

        def attention(m: Machine, x: Tensor, states: Tensor) -> Tensor:
            query, key, value = apply(m, q, x), apply(m, k, states), apply(m, v, states)
            queries, keys = x.numel // width // m.batch, states.numel // source // m.batch
            shape = Shape(m.batch, queries, keys, heads, heads, head_dim, head_dim, causal=False)
            mixed = attend(m, query, key, value, shape)
            del query, key, value
            return ops.scale(m, apply(m, out, mixed))

        return attention
