"""ESM-2, the protein language models: BERT's parts with the norms in front, rotary positions and no dropout behind the embedding.

Read in transformers 5.24 `models/esm/modeling_esm.py`.
"""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder import classifier_of, norm_of
from memlint.memory.families.llama import LANGUAGE
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Parameter, Tensor
from memlint.models.architecture import Architecture


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The encoder with `layers` blocks and the head of the objective."""
    config, hidden, heads = a.config, a.hidden_size or 0, a.heads or 1
    tables: list[tuple[Tensor, Tensor]] = []
    rotary = config.get("position_embedding_type", "rotary") == "rotary"
    b.enter_layer(-1)
    words = b.embedding("word_embeddings", b.setup.vocabulary, hidden)
    places = None if rotary else b.embedding("position_embeddings", a.max_positions or 0, hidden)
    before = norm_of(b, "layer_norm", hidden) if config.get("emb_layer_norm_before") else None
    drops = bool(config.get("token_dropout"))

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        x = ops.embedding(m, words, hidden, m.tokens, ops.token_ids(m, m.tokens))
        if drops:  # masked positions become zero, the others are scaled
            x = ops.masked_fill(m, x, m.new(m.tokens, 1))
            x = ops.cast(m, ops.mul(m, ops.cast(m, ops.scale(m, x), FP32), m.new(m.batch, FP32)), x.itemsize)
        if places is not None:
            x = ops.add(m, x, ops.embedding(m, places, hidden, m.tokens, ops.token_ids(m, m.tokens), inputs=False))
        if before is not None:
            x = before(m, x)
        if m.mask is not None:
            x = ops.mul(m, x, m.new(m.tokens, x.itemsize))
        tables[:] = [parts.rotary_tables(m, hidden // heads, x.itemsize)] if rotary else []
        return x

    blocks = [_block(b, a, index, tables) for index in range(layers)]
    b.enter_layer(-1)
    after = norm_of(b, "emb_layer_norm_after", hidden)
    b.frozen = True  # without a loss on contacts it gets no gradient
    b.linear("regression", (a.layers or 0) * heads, 1, bias=True)
    b.frozen = False
    stage = Stage(embed, blocks, after)
    if b.setup.objective in LANGUAGE:
        return _language(b, stage, words, hidden)
    return Model(
        [stage],
        classifier_of(b, a, hidden, float(a.dropouts.get("hidden_dropout_prob", 0.0))),
        None,
        hidden,
        b.setup.num_labels,
        causal=False,
        upcasts=False,
    )


def _language(b: Builder, stage: Stage, words: Parameter, hidden: int) -> Model:
    """The head over amino acids; its bias is added apart, and the loss takes the logits as they are."""
    transform, norm = b.linear("lm_head.dense", hidden, hidden, bias=True), norm_of(b, "layer_norm", hidden)
    decoder = b.linear("decoder", hidden, b.setup.vocabulary, tied=words if b.setup.tied else None)
    bias = b.vector("bias", b.setup.vocabulary)

    def head(m: Machine, x: Tensor) -> Tensor:
        x = norm(m, _gelu(m, apply(m, transform, x)))
        return ops.add(m, apply(m, decoder, x), bias)

    return Model([stage], head, decoder, hidden, b.setup.vocabulary, causal=False, upcasts=False)


def _gelu(m: Machine, x: Tensor) -> Tensor:
    """`x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))`, operation by operation."""
    half, turned = ops.scale(m, x), ops.unary(m, ops.scale(m, x))
    return ops.mul(m, half, ops.shift(m, turned))


def _block(b: Builder, a: Architecture, index: int, tables: list[tuple[Tensor, Tensor]]) -> Block:
    b.enter_layer(index)
    hidden, heads, inner = a.hidden_size or 0, a.heads or 1, a.intermediate_size or 0
    head_dim = hidden // heads
    q, k, v = (b.linear(name, hidden, hidden, bias=True) for name in ("query", "key", "value"))
    out = b.linear("attention.output.dense", hidden, hidden, bias=True)
    first = norm_of(b, "attention.LayerNorm", hidden)
    up, down = b.linear("intermediate.dense", hidden, inner, bias=True), b.linear("output.dense", inner, hidden, bias=True)
    second = norm_of(b, "LayerNorm", hidden)
    hidden_drop = float(a.dropouts.get("hidden_dropout_prob", 0.0))
    shape_drop = float(a.dropouts.get("attention_probs_dropout_prob", 0.0))

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        normed = first(m, x)
        queries, keys, values = apply(m, q, normed), apply(m, k, normed), apply(m, v, normed)
        queries = ops.scale(m, queries)
        if tables:
            queries, keys = parts.rope(m, queries, keys, tables[-1])
        shape = Shape(
            m.batch, m.sequence, m.sequence, heads, heads, head_dim, head_dim, shape_drop, causal=False, float32_softmax=False
        )
        core = attend(m, queries, keys, values, shape)
        del queries, keys, values
        x = ops.add(m, ops.dropout(m, apply(m, out, core), hidden_drop), x)
        del core, normed
        states = _gelu(m, apply(m, up, second(m, x)))
        return ops.add(m, ops.dropout(m, apply(m, down, states), hidden_drop), x)

    return block
