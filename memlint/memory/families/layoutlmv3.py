"""LayoutLMv3: words with their places on the page and the page's picture in one sequence, biases by distance in line and on the page.

Read in transformers 5.24 `models/layoutlmv3/modeling_layoutlmv3.py`. Every sample has its picture; the biases are looked up without a
graph, so that their weights are trained by nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import convolutions, ops
from memlint.memory.attention import Shape, attend, make_mask
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder import BERT, POOLED_HEADS_ONLY, classifier_of, norm_of
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.families.vision import spread_token
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, INT64, Parameter, Tensor
from memlint.models.architecture import Architecture

MANY = 10
"""Labels from which on tokens get a head of two layers."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The encoder with `layers` blocks and the head of the objective."""
    config, hidden, heads = a.config, a.hidden_size or 768, a.heads or 12
    dropout = float(a.dropouts.get("hidden_dropout_prob", 0.0))
    b.enter_layer(-1)
    words = b.embedding("word_embeddings", b.setup.vocabulary, hidden)
    kinds = b.embedding("token_type_embeddings", int(config.get("type_vocab_size") or 1), hidden)
    text_norm = norm_of(b, "embeddings.LayerNorm", hidden)
    places = b.embedding("position_embeddings", a.max_positions or 512, hidden)
    boxes = _boxes(b, a)
    size, side = int(config.get("input_size") or 224), int(config.get("patch_size") or 16)
    patches, pixels = (size // side) ** 2, int(config.get("num_channels") or 3)
    kernel = b.parameter("patch_embed", "conv", (hidden, pixels * side * side))
    kernel_bias = b.vector("patch_embed.bias", hidden)
    first = b.parameter("cls_token", "token", (hidden,))
    grid = b.parameter("pos_embed", "embedding", (patches + 1, hidden))
    both_norm, picture_norm = norm_of(b, "LayerNorm", hidden), norm_of(b, "norm", hidden)
    by_line, by_page = bool(config.get("has_relative_attention_bias")), bool(config.get("has_spatial_attention_bias"))
    for name, used, key in (("rel_pos_bias", by_line, "rel_pos_bins"), ("rel_pos_x_bias", by_page, "rel_2d_pos_bins"),
                            ("rel_pos_y_bias", by_page, "rel_2d_pos_bins")):  # fmt: skip
        if used:
            b.linear(name, int(config.get(key) or 32), heads)
    text = b.machine.sequence
    picture: list[Tensor] = []
    ids: list[Tensor] = []
    """Boxes and places of all positions, which the model's variables hold until the encoder has run."""

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.sequence = text
        x = ops.embedding(m, words, hidden, m.tokens, ops.token_ids(m, 0))
        for table in (kinds, places):
            x = ops.add(m, x, ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens), inputs=False))
        corners = [ops.embedding(m, t, t.shape[1], m.tokens, ops.token_ids(m, 0), inputs=False) for t in boxes[:4]]
        corners += [ops.embedding(m, t, t.shape[1], m.tokens, ops.token_ids(m, m.tokens), inputs=False) for t in boxes[4:]]
        x = ops.add(m, x, ops.concat(m, tuple(corners)))
        del corners
        x = ops.dropout(m, text_norm(m, x), dropout)
        picture[:] = [m.new(m.batch * pixels * size * size, b.setup.weight_itemsize)]
        seen = convolutions.convolution(m, picture[0], kernel, kernel_bias, m.batch * patches * hidden)
        seen = ops.concat(m, (spread_token(m, first, m.batch * hidden), seen))
        seen = picture_norm(m, ops.add(m, seen, grid))
        x = both_norm(m, ops.concat(m, (x, seen)))
        del seen
        x = ops.dropout(m, x, dropout)
        m.sequence = text + patches + 1
        # Ones of its own where no sample is padded: SDPA drops a mask of ones, eager attention adds it.
        if m.mask is not None or m.attention == "eager":
            m.mask = make_mask(m, x.itemsize if m.attention == "eager" else m.mask.itemsize if m.mask is not None else BYTE)
        ids[:] = [m.new(m.tokens * numbers, INT64) for numbers in (4, 1)]
        m.shared = [_bias(m, heads, b.setup.weight_itemsize, by_page)] if by_line else []
        return x

    def finish(m: Machine, x: Tensor) -> Tensor:
        m.shared, m.sequence, m.mask = [], text, None
        ids.clear()
        if b.setup.objective in POOLED_HEADS_ONLY:
            return x
        return ops.narrow(m, x, m.tokens * hidden)

    blocks = [_block(b, a, index, dropout) for index in range(layers)]
    b.enter_layer(-1)
    return Model([Stage(embed, blocks, finish)], _head(b, a, hidden, dropout), None, hidden, b.setup.num_labels, causal=False)


def _boxes(b: Builder, a: Architecture) -> list[Parameter]:
    """The tables in the order in which they are looked up: left, upper, right, lower, height, width."""
    rows = int(a.config.get("max_2d_position_embeddings") or 1024)
    corner, extent = int(a.config.get("coordinate_size") or 128), int(a.config.get("shape_size") or 128)
    x, y, h, w = (
        b.embedding(f"{axis}_position_embeddings", rows, width)
        for axis, width in (("x", corner), ("y", corner), ("h", extent), ("w", extent))
    )
    return [x, y, x, y, h, w]


def _bias(m: Machine, heads: int, itemsize: int, by_page: bool) -> Tensor:
    """`_compute_position_bias`: numbers looked up for each pair of positions, added up in place."""
    pairs = m.batch * m.sequence * m.sequence
    total: Tensor | None = None
    for _ in range(3 if by_page else 1):
        index = m.new(pairs, 4)
        found = m.new(pairs * heads, itemsize)
        del index
        total = total or found
        del found
    assert total is not None
    return total


def _head(b: Builder, a: Architecture, hidden: int, dropout: float) -> Callable[[Machine, Tensor], Tensor]:
    if b.setup.objective != "token_classification" or b.setup.num_labels < MANY:
        return classifier_of(b, a, hidden, dropout)
    dense = b.linear("classifier", hidden, hidden, bias=True)
    out = b.linear("classifier", hidden, b.setup.num_labels, bias=True)

    def tokens(m: Machine, x: Tensor) -> Tensor:
        x = ops.dropout(m, ops.dropout(m, x, dropout), dropout)
        x = ops.unary(m, apply(m, dense, x), keeps="output")
        return apply(m, out, ops.dropout(m, x, dropout))

    return tokens


def _block(b: Builder, a: Architecture, index: int, dropout: float) -> Block:
    """BERT's block with the biases among its scores."""
    b.enter_layer(index)
    hidden, heads = a.hidden_size or 768, a.heads or 12
    size, inner = hidden // heads, a.intermediate_size or 4 * hidden
    q, k, v, out = (b.linear(name, hidden, hidden, bias=True) for name in BERT[:4])
    first = norm_of(b, "attention.output.LayerNorm", hidden)
    up, down = b.linear(BERT[4], hidden, inner, bias=True), b.linear(BERT[5], inner, hidden, bias=True)
    second = norm_of(b, "output.LayerNorm", hidden)
    act, drop = a.activation or "gelu", float(a.dropouts.get("attention_probs_dropout_prob", 0.0))

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        shape = Shape(m.batch, m.sequence, m.sequence, heads, heads, size, size, drop, causal=False, float32_softmax=False)
        bias = m.shared[0] if m.shared else None
        if bias is not None and m.attention != "eager":
            bias = ops.where(m, m.mask, bias, shape.scores) if m.mask is not None else bias
            bias = ops.copy(m, bias)  # it is a transposed view
        core = attend(m, apply(m, q, x), apply(m, k, x), apply(m, v, x), shape, bias)
        del bias
        mixed = ops.dropout(m, apply(m, out, core), dropout)
        x = first(m, ops.add(m, mixed, x))
        del mixed, core
        m.weights.clear()
        states = parts.activation(m, apply(m, up, x), act)
        fed = ops.dropout(m, apply(m, down, states), dropout)
        return second(m, ops.add(m, fed, x))

    return block
