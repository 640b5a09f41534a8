"""Encoders of the RoBERTa line that normalise in front of each part and behind the last block.

Read in transformers 5.24 `models/roberta_prelayernorm/modeling_roberta_prelayernorm.py` and `models/xlm_roberta_xl`, which has no norm
behind its embeddings and no dropout behind its feed-forward part.
"""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.attention import Shape, attend, in_dtype_of
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder import BERT, headed, norm_of
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import INT64, Tensor
from memlint.models.architecture import Architecture


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The encoder with `layers` blocks and the head of the objective."""
    hidden = a.hidden_size or 0
    dropout = float(a.dropouts.get("hidden_dropout_prob", 0.0))
    bare = a.model_type == "xlm-roberta-xl"
    b.enter_layer(-1)
    words = b.embedding("word_embeddings", b.setup.vocabulary, hidden)
    places = b.embedding("position_embeddings", a.max_positions or b.machine.sequence, hidden)
    kinds = b.embedding("token_type_embeddings", int(a.config.get("type_vocab_size") or 1), hidden)
    norm = norm_of(b, "LayerNorm", hidden) if not bare else None
    ids = b.buffer(a.max_positions or b.machine.sequence, INT64)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        x = ops.embedding(m, words, hidden, m.tokens, ids)
        for table in (kinds, places):
            x = ops.add(m, x, ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens), inputs=False))
        x = ops.dropout(m, norm(m, x) if norm is not None else x, dropout)
        in_dtype_of(m, x)
        return x

    blocks = [_block(b, a, index, dropout, bare) for index in range(layers)]
    b.enter_layer(-1)
    model = headed(b, a, Stage(embed, blocks, norm_of(b, "final_norm", hidden)), hidden, hidden, dropout)
    model.upcasts = False
    return model


def _block(b: Builder, a: Architecture, index: int, dropout: float, bare: bool) -> Block:
    b.enter_layer(index)
    hidden, heads = a.hidden_size or 0, a.heads or 1
    size, inner = hidden // heads, a.intermediate_size or 4 * hidden
    q, k, v, out = (b.linear(name, hidden, hidden, bias=True) for name in BERT[:4])
    first = norm_of(b, "attention.LayerNorm", hidden)
    up, down = b.linear(BERT[4], hidden, inner, bias=True), b.linear(BERT[5], inner, hidden, bias=True)
    second = norm_of(b, "LayerNorm", hidden)
    act, drop = a.activation or "gelu", float(a.dropouts.get("attention_probs_dropout_prob", 0.0))

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        shape = Shape(m.batch, m.sequence, m.sequence, heads, heads, size, size, drop, causal=False, float32_softmax=False)
        normed = first(m, x)
        core = attend(m, apply(m, q, normed), apply(m, k, normed), apply(m, v, normed), shape)
        x = ops.add(m, ops.dropout(m, apply(m, out, core), dropout), x)
        del core, normed
        states = apply(m, up, second(m, x))
        states = parts.activation(m, states, act)
        fed = apply(m, down, states)
        if not bare:
            fed = ops.dropout(m, fed, dropout)
        return ops.add(m, fed, x)

    return block
