"""T5, mT5 and UMT5: pre-norm encoder and decoder with a learned relative position bias.

Read in transformers 5.24 `models/t5/modeling_t5.py`, `models/umt5/modeling_umt5.py` (a bias in every layer) and
`integrations/sdpa_attention.py` (`create_position_bias_mask`).
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder_decoder import target_length, two_stacks
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, HALF, INT64, Parameter, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import NamedTuple

Norm = Callable[[Machine, Tensor], Tensor]


class _Sizes(NamedTuple):
    hidden: int
    heads: int
    head_dim: int
    inner: int
    dropout: float
    gated: bool
    act: str
    buckets: int
    own_bias: bool
    """Every layer has a bias of its own (UMT5)."""
    checkpointed: bool
    reentrant: bool


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Encoder, decoder and language head."""
    two_stacks(b, layers)
    config = a.config
    hidden, heads = int(config.get("d_model") or 512), int(config.get("num_heads") or 8)
    act = str(config.get("feed_forward_proj") or "relu")
    gated = act.startswith("gated-")
    act = "gelu_new" if act == "gated-gelu" else act.removeprefix("gated-")
    sizes = _Sizes(
        hidden, heads, int(config.get("d_kv") or 64), int(config.get("d_ff") or 2048), float(config.get("dropout_rate") or 0.0),
        gated, act, int(config.get("relative_attention_num_buckets") or 32), a.model_type == "umt5",
        b.setup.checkpointing != "none", b.setup.reentrant,
    )  # fmt: skip
    b.enter_layer(-1)
    table = b.embedding("shared", b.setup.vocabulary, hidden)
    encoder = int(config.get("num_layers") or layers)
    decoder = int(config.get("num_decoder_layers") or encoder)
    stages = [_stack(b, sizes, table, encoder, 0, False), _stack(b, sizes, table, decoder, encoder, True)]
    head = b.linear("lm_head", hidden, b.setup.vocabulary, tied=table if b.setup.tied else None)
    scales = a.model_type != "mt5" and bool(config.get("scale_decoder_outputs", b.setup.tied))  # mT5 has no such line in 5.24

    def logits(m: Machine, x: Tensor) -> Tensor:
        if scales:
            x = ops.scale(m, x)
            m.named.append(x)
        return apply(m, head, x)

    return Model(stages, logits, head, hidden, b.setup.vocabulary, causal=False, upcasts=False)


def _norm(b: Builder, name: str, width: int) -> Norm:
    """`T5LayerNorm`: statistics in float32, the product with them in float32 as well."""
    weight = b.norm(name, width)

    def norm(m: Machine, x: Tensor) -> Tensor:
        statistics = ops.rms_statistics(m, ops.cast(m, x, FP32), width)
        x = ops.mul(m, x, statistics)
        if weight.itemsize == HALF:
            x = ops.cast(m, x, HALF)
        return ops.mul(m, weight, x)

    return norm


def _stack(b: Builder, s: _Sizes, table: Parameter, layers: int, first: int, decodes: bool) -> Stage:
    """One side: embedding, blocks, final norm."""
    source = b.machine.sequence
    target = target_length(b)
    biases: list[Parameter] = []
    blocks: list[Block] = []
    for index in range(layers):
        b.enter_layer(first + index)
        blocks.append(_block(b, s, biases, index, decodes, source))
    b.enter_layer(-1)
    final = _norm(b, "final_layer_norm", s.hidden)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.sequence = target if decodes else source
        ids = ops.token_ids(m, m.tokens)
        x = ops.embedding(m, table, s.hidden, m.tokens, ids)
        m.embedded = [x] if b.setup.stack.names_embedding else []
        padding, m.shared = m.mask, []
        if decodes:
            m.mask = None
            if padding is not None:
                m.shared.append(m.new(m.batch * m.sequence * source, padding.itemsize))
            if m.attention == "eager":
                m.mask = m.new(m.batch * m.sequence * m.sequence, x.itemsize)
        return ops.dropout(m, x, s.dropout)

    return Stage(embed, blocks, lambda m, x: _finished(m, final, x, s.dropout))


def _finished(m: Machine, final: Norm, x: Tensor, dropout: float) -> Tensor:
    m.shared = []
    return ops.dropout(m, final(m, x), dropout)


def _bias(m: Machine, s: _Sizes, table: Parameter, keeps_buckets: bool = True) -> Tensor:
    """`compute_bias`: one value per head for each pair of positions, looked up by bucket."""
    pairs = m.sequence * m.sequence
    buckets = m.new(pairs if keeps_buckets else 0, INT64)
    return ops.embedding(m, table, s.heads, pairs, buckets, inputs=False)


def _made(m: Machine, s: _Sizes, table: Parameter, shape: Shape, itemsize: int, crosses: bool) -> Tensor:
    """What the first block adds to its scores and hands to the others: the positions' bias, zeros beside the encoder's states.

    Its gradient comes back from them even where the block runs without a graph, which then keeps no buckets. Checkpointing lets the
    zeros need a gradient, too; where it is reentrant both are results of its function, which need one whatever they are made of.
    """
    enabled, m.tape.enabled = m.tape.enabled, True
    recomputed = s.checkpointed and enabled
    layer = -1 if recomputed else m.ledger.within(-1)  # it is no layer's own
    if crosses:
        made = m.new(shape.heads * shape.queries * shape.keys, m.autocast or itemsize)
        made = m.tape.leaf(made, holds=not s.reentrant) if s.checkpointed else made
    else:
        made = _bias(m, s, table, enabled)
        if made.node is None and s.reentrant and s.checkpointed and not recomputed:
            made = m.tape.leaf(made, holds=False)
    m.tape.enabled = enabled
    if not recomputed:
        m.ledger.within(layer)
    m.shared.append(made)
    return made


def _block(b: Builder, s: _Sizes, biases: list[Parameter], index: int, decodes: bool, source: int) -> Block:
    width = s.heads * s.head_dim
    padded = int(decodes and b.setup.padding_mask)  # the encoder's mask comes first among what the blocks share

    def attention(prefix: str, has_bias: bool) -> Callable[[Machine, Tensor, Tensor | None], Tensor]:
        b.parent = prefix
        q, k, v = (b.linear(name, s.hidden, width) for name in ("q", "k", "v"))
        out = b.linear("o", width, s.hidden)
        if has_bias:
            biases.append(b.embedding("relative_attention_bias", s.buckets, s.heads))
        own = biases[-1] if s.own_bias and has_bias else None
        norm = _norm(b, "layer_norm", s.hidden)

        def bias_of(m: Machine, shape: Shape, itemsize: int, crosses: bool) -> Tensor:
            if own is not None:
                return _bias(m, s, own)
            if s.own_bias:
                return m.new(shape.heads * shape.queries * shape.keys, m.autocast or itemsize)
            place = padded + crosses
            if place < len(m.shared):
                return m.shared[place]
            return _made(m, s, biases[0], shape, itemsize, crosses)

        def run(m: Machine, x: Tensor, other: Tensor | None) -> Tensor:
            normed = norm(m, x)
            states = other if other is not None else normed
            keys = source if other is not None else m.sequence
            shape = Shape(
                m.batch,
                m.sequence,
                keys,
                s.heads,
                s.heads,
                s.head_dim,
                s.head_dim,
                s.dropout,
                causal=decodes and other is None,
                float32_softmax=False,
            )
            query, key, value = apply(m, q, normed), apply(m, k, states), apply(m, v, states)
            crosses = other is not None
            bias = bias_of(m, shape, query.itemsize, crosses)
            mixed = _attend(m, query, key, value, shape, bias, crosses, padded)
            x = ops.add(m, x, ops.dropout(m, apply(m, out, mixed), s.dropout))
            del m.weights[:-1]  # one name for those of either attention
            return x

        return run

    itself = attention("SelfAttention", index == 0 or s.own_bias)
    cross = attention("EncDecAttention", False) if decodes else None
    b.parent = "DenseReluDense"
    wi = [b.linear(name, s.hidden, s.inner) for name in (("wi_0", "wi_1") if s.gated else ("wi",))]
    wo = b.linear("wo", s.inner, s.hidden)
    norm = _norm(b, "layer_norm", s.hidden)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        x = itself(m, x, None)
        if cross is not None:
            assert context is not None
            x = cross(m, x, context)
        normed = norm(m, x)
        inner = parts.activation(m, apply(m, wi[0], normed), s.act)
        if s.gated:
            inner = ops.mul(m, inner, apply(m, wi[1], normed))
        inner = ops.dropout(m, inner, s.dropout)
        inner = ops.cast(m, inner, wo.weight.itemsize if wo.quantised is None else inner.itemsize)
        return ops.add(m, x, ops.dropout(m, apply(m, wo, inner), s.dropout))

    return block


def _attend(m: Machine, q: Tensor, k: Tensor, v: Tensor, shape: Shape, bias: Tensor, crosses: bool, padded: int) -> Tensor:
    """Attention with the position bias; SDPA gets it together with the mask as one additive mask, made in every layer."""
    padding = m.mask if not crosses else m.shared[0] if padded else None
    kept, m.mask = m.mask, padding
    if m.attention == "sdpa":
        per_head = shape.heads * shape.queries * shape.keys
        if padding is not None:
            bias = ops.where(m, padding, bias, shape.batch * per_head)
        elif shape.causal:
            bias = ops.where(m, m.new(shape.queries * shape.keys, BYTE), bias, per_head)
        elif not crosses:
            bias = ops.copy(m, bias)  # it is a transposed view
    mixed = attend(m, q, k, v, shape, bias)
    m.mask = kept
    return mixed
