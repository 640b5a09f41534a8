"""DeBERTa: attention over content and relative positions, which every layer projects anew.

Read in transformers 5.24 `models/deberta_v2/modeling_deberta_v2.py` (v2 and v3) and `models/deberta/modeling_deberta.py` (v1: one
projection without bias for query, key and value, biases of query and value added afterwards).
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import convolutions, ops
from memlint.memory.algebra import add_into
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder import classifier_of
from memlint.memory.families.llama import LANGUAGE
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import Linear, apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, INT64, Parameter, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture

Norm = Callable[[Machine, Tensor], Tensor]


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The encoder and the head of the objective."""
    config, hidden = a.config, a.hidden_size or 0
    convolves = int(config.get("conv_kernel_size") or 0)
    if convolves and layers < b.setup.layers:
        raise NotUniform
    width = int(config.get("embedding_size") or hidden)
    dropout = float(config.get("hidden_dropout_prob") or 0.0)
    types = int(config.get("type_vocab_size") or 0)
    b.enter_layer(-1)
    words = b.embedding("word_embeddings", b.setup.vocabulary, width)
    positioned = config.get("position_biased_input", True)
    places = b.embedding("position_embeddings", a.max_positions or 512, width) if positioned else None
    kinds = b.embedding("token_type_embeddings", types, width) if types else None
    project = b.linear("embed_proj", width, hidden) if width != hidden else None
    norm = _norm(b, "LayerNorm", hidden)
    relative = bool(config.get("relative_attention"))
    span = int(config.get("position_buckets") or -1)
    reach = int(config.get("max_relative_positions") or -1)
    span = span if span > 0 else reach if reach > 0 else a.max_positions or 512
    table = b.embedding("rel_embeddings", 2 * span, hidden) if relative else None
    table_norm = _norm(b, "rel_LayerNorm", hidden) if relative and "layer_norm" in str(config.get("norm_rel_ebd") or "") else None
    convolution = _convolution(b, hidden, convolves, dropout) if convolves else None
    ids = b.buffer(a.max_positions or 512, INT64)
    first: list[Tensor] = []

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        x = ops.embedding(m, words, width, m.tokens, ids)
        if places is not None:
            x = ops.add(m, x, ops.embedding(m, places, width, m.sequence, ids, inputs=False))
        if kinds is not None:
            zeros = ops.token_ids(m, m.tokens)
            x = ops.add(m, x, ops.embedding(m, kinds, width, m.tokens, zeros, inputs=False))
        if project is not None:
            x = apply(m, project, x)
        # The mask is always there (of ones, if need be); the embeddings are multiplied by it.
        mask = m.new(m.tokens, x.itemsize)
        x = ops.mul(m, norm(m, x), mask)
        m.mask = m.new(m.batch * m.sequence * m.sequence, INT64 if b.setup.padding_mask else FP32)
        m.shared = []
        if table is not None:
            m.shared = [m.new(m.sequence * m.sequence, INT64), table if table_norm is None else table_norm(m, table)]
        x = ops.dropout(m, x, dropout)
        first[:] = [x] if convolution is not None else []
        return x

    def finish(m: Machine, x: Tensor) -> Tensor:
        m.shared = []
        first.clear()
        return x

    blocks: list[Block] = []
    for index in range(layers):
        b.enter_layer(index)
        block = _block(b, a, hidden, dropout, span, relative)
        blocks.append(_followed(block, convolution, first) if convolution is not None and index == 0 else block)
    b.enter_layer(-1)
    stage = Stage(embed, blocks, finish)
    if b.setup.objective in LANGUAGE:
        dense = b.linear("transform.dense", hidden, hidden, bias=True)
        weight, bias = b.norm("transform.LayerNorm", hidden), b.vector("transform.LayerNorm.bias", hidden)
        head = b.linear("decoder", hidden, b.setup.vocabulary, bias=True, tied=words if b.setup.tied else None)
        act = a.activation or "gelu"

        def language(m: Machine, x: Tensor) -> Tensor:
            x = parts.activation(m, apply(m, dense, x), act)
            return apply(m, head, parts.layer_norm(m, x, weight, bias, hidden))

        return Model([stage], language, head, hidden, b.setup.vocabulary, causal=False, upcasts=False)
    return Model([stage], classifier_of(b, a, hidden, dropout), None, hidden, b.setup.num_labels, causal=False, upcasts=False)


def _norm(b: Builder, name: str, width: int) -> Norm:
    weight, bias = b.norm(name, width), b.vector(f"{name}.bias", width)
    if b.model_type == "deberta":
        return lambda m, x: _plain_norm(m, x, weight, bias, width)
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


def _plain_norm(m: Machine, x: Tensor, weight: Parameter, bias: Parameter, width: int) -> Tensor:
    """`DebertaLayerNorm` of v1: in float32, operation by operation."""
    dtype = x.itemsize
    x = ops.cast(m, x, FP32)
    mean = ops.mean_last(m, x, width)
    variance = ops.mean_last(m, ops.power(m, ops.subtract(m, x, mean)), width)
    x = ops.mul(m, ops.subtract(m, x, mean), ops.small(m, ops.shift(m, variance)))
    return ops.add(m, ops.mul(m, weight, ops.cast(m, x, dtype)), bias)


def _convolution(b: Builder, hidden: int, kernel: int, dropout: float) -> Callable[[Machine, Tensor, Tensor], Tensor]:
    """`ConvLayer` beside the first block (v2-xlarge and larger)."""
    weight, bias = b.parameter("conv", "conv", (hidden, hidden * kernel)), b.vector("conv.bias", hidden)
    norm = _norm(b, "conv.LayerNorm", hidden)

    def run(m: Machine, x: Tensor, residual: Tensor) -> Tensor:
        out = ops.copy(m, convolutions.convolution(m, ops.copy(m, x), weight, bias, x.numel))
        out = ops.unary(m, ops.dropout(m, out, dropout), keeps="output")
        return ops.mul(m, norm(m, ops.add(m, residual, out)), m.new(m.tokens, x.itemsize))

    return run


def _followed(block: Block, convolution: Callable[[Machine, Tensor, Tensor], Tensor], first: list[Tensor]) -> Block:
    return lambda m, x, context: convolution(m, x, block(m, x, context))


def _by_head(m: Machine, x: Tensor) -> Tensor:
    """`transpose_for_scores`."""
    return ops.copy(m, x)


Projections = Callable[[Machine, Tensor], tuple[Tensor, Tensor, Tensor]]


def _apart(b: Builder, hidden: int) -> tuple[Projections, tuple[Linear, Linear]]:
    """Query, key and value of v2, each of its own projection; and those that positions share (`share_att_key`)."""
    q, k, v = (b.linear(name, hidden, hidden, bias=True) for name in ("query_proj", "key_proj", "value_proj"))
    return lambda m, x: (_by_head(m, apply(m, q, x)), _by_head(m, apply(m, k, x)), _by_head(m, apply(m, v, x))), (q, k)


def _joined(b: Builder, hidden: int) -> tuple[Projections, tuple[Linear, Linear]]:
    """Query, key and value of v1: one projection, the biases of query and value added to its parts; the query is scaled."""
    # Their dtype is that of `torch.zeros`, whatever the weights are loaded in.
    trained = not b.frozen and b.setup.trains("q_bias", "bias")
    q_bias, v_bias = (b.make(name, "bias", (hidden,), FP32, trained, "weights") for name in ("q_bias", "v_bias"))
    joined = b.linear("in_proj", hidden, 3 * hidden)

    def project(m: Machine, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = ops.split(m, apply(m, joined, x), (x.numel, x.numel, x.numel))
        query, value = ops.scale(m, ops.add(m, query, q_bias)), ops.add(m, value, v_bias)
        return query, key, value

    return project, (joined, joined)


def _block(b: Builder, a: Architecture, hidden: int, dropout: float, span: int, relative: bool) -> Block:
    config, heads = a.config, a.heads or 1
    inner, act = a.intermediate_size or 4 * hidden, a.activation or "gelu"
    kinds = config.get("pos_att_type") or ()
    drop = float(config.get("attention_probs_dropout_prob") or 0.0)
    b.parent = "attn"
    first_version = a.model_type == "deberta"
    project, (q, k) = _joined(b, hidden) if first_version else _apart(b, hidden)
    pos_key, pos_query = (k if "c2p" in kinds and relative else None), (q if "p2c" in kinds and relative else None)
    if relative and (first_version or not config.get("share_att_key")):
        names = ("pos_proj", "pos_q_proj") if first_version else ("pos_key_proj", "pos_query_proj")
        pos_key = b.linear(names[0], hidden, hidden, bias=not first_version) if pos_key is not None else None
        pos_query = b.linear(names[1], hidden, hidden, bias=True) if pos_query is not None else None
    out = b.linear("attention.output.dense", hidden, hidden, bias=True)
    first = _norm(b, "attention.output.LayerNorm", hidden)
    b.parent = "mlp"
    up, down = b.linear("intermediate.dense", hidden, inner, bias=True), b.linear("output.dense", inner, hidden, bias=True)
    second = _norm(b, "output.LayerNorm", hidden)

    def positions(m: Machine, states: Tensor, projection: Linear, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores against every relative position, picked by distance; the distances; and the projected positions."""
        rows = m.batch * heads * m.sequence
        projected = apply(m, projection, positions)
        kinds = projected.numel // hidden
        projected = projected if first_version else _by_head(m, projected)
        scored = ops.matmul(m, seen(m, states), ops.spread(m, projected, m.batch * projected.numel), rows * kinds)
        index = m.new(m.sequence * m.sequence, INT64)
        return ops.take(m, scored, index, rows * m.sequence), index, projected

    def attention(m: Machine, x: Tensor) -> Tensor:
        pairs = m.batch * heads * m.sequence * m.sequence
        query, key, value = project(m, x)
        scores = ops.matmul(m, seen(m, query), _by_head(m, key) if first_version else ops.scale(m, key), pairs)
        total: Tensor | None = None  # `rel_att` and `attention_scores` are names to the end
        if relative:
            table = ops.dropout(m, m.shared[1], dropout)
            if first_version:
                table = ops.narrow(m, table, 2 * min(span, m.sequence) * hidden)
            # `c2p_att`, `c2p_pos`, `p2c_att`, `p2c_pos` and the layers of positions are names until the bias is there.
            picked: list[Tensor] = []
            if pos_key is not None:
                picked += positions(m, query, pos_key, table)
                total = ops.shift(m, divided(m, picked[0]))
            if pos_query is not None:
                picked += positions(m, key, pos_query, table)
                other = divided(m, picked[-3])
                total = other if total is None else add_into(m, total, other)
                del other
            picked.clear()
            if total is not None:
                scores = ops.add(m, scores, total)
        seen_by, unseen = (m.new(m.batch * m.sequence * m.sequence, BYTE) for _ in ("mask.bool()", "~mask"))
        scores = ops.masked_fill(m, scores, unseen)
        del unseen
        weights = ops.softmax(m, ops.cast(m, scores, FP32) if m.autocast else scores, FP32 if m.autocast else scores.itemsize)
        weights = ops.dropout(m, weights, drop)
        mixed = ops.copy(m, ops.matmul(m, weights, seen(m, value), x.numel))
        del seen_by
        return mixed

    def divided(m: Machine, scores: Tensor) -> Tensor:
        """By the root of the size; v1 has divided the states."""
        return scores if first_version else ops.scale(m, scores)

    def seen(m: Machine, states: Tensor) -> Tensor:
        """v1 hands `matmul` views of its one projection, which each product copies; v2's states are copies already."""
        return _by_head(m, states) if first_version else states

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        mixed = ops.dropout(m, apply(m, out, attention(m, x)), dropout)
        x = first(m, ops.add(m, mixed, x))
        del mixed
        fed = ops.dropout(m, apply(m, down, parts.activation(m, apply(m, up, x), act)), dropout)
        return second(m, ops.add(m, fed, x))

    return block
