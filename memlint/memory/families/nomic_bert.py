"""Nomic BERT: post-norm blocks as BERT's, with rotary positions and a gated MLP without biases.

Read in transformers 5.24 `models/nomic_bert/modeling_nomic_bert.py`.
"""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.attention import Shape, attend, in_dtype_of
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder import headed, norm_of
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor
from memlint.models.architecture import Architecture

Tables = list[tuple[Tensor, Tensor]]


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The encoder with `layers` blocks and the head of the objective."""
    hidden = a.hidden_size or 0
    head_dim = a.head_dim or hidden // (a.heads or 1)
    dropout = float(a.dropouts.get("hidden_dropout_prob", 0.0))
    b.enter_layer(-1)
    words = b.embedding("word_embeddings", b.setup.vocabulary, hidden)
    kinds = b.embedding("token_type_embeddings", int(a.config.get("type_vocab_size") or 2), hidden)
    norm = norm_of(b, "LayerNorm", hidden)
    tables: Tables = []

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        x = ops.embedding(m, words, hidden, m.tokens, ops.token_ids(m, 0))  # the batch holds the ids
        kind = ops.embedding(m, kinds, hidden, m.tokens, ops.token_ids(m, m.tokens), inputs=False)
        x = ops.add(m, x, kind)
        x = norm(m, x)
        x = ops.dropout(m, x, dropout)
        in_dtype_of(m, x)
        tables[:] = [parts.rotary_tables(m, head_dim, x.itemsize)]
        return x

    blocks: list[Block] = [_block(b, a, index, head_dim, dropout, tables) for index in range(layers)]
    b.enter_layer(-1)
    return headed(b, a, Stage(embed, blocks, lambda m, x: x), hidden, hidden, dropout)


def _block(b: Builder, a: Architecture, index: int, head_dim: int, dropout: float, tables: Tables) -> Block:
    b.enter_layer(index)
    hidden, heads = a.hidden_size or 0, a.heads or 1
    width, inner, act = heads * head_dim, a.intermediate_size or 4 * hidden, a.activation or "silu"
    drop = float(a.dropouts.get("attention_probs_dropout_prob", 0.0))
    first = norm_of(b, "post_attention_layernorm", hidden)
    b.parent = "mlp"
    gate, up, down = (
        b.linear("gate_proj", hidden, inner),
        b.linear("up_proj", hidden, inner),
        b.linear("down_proj", inner, hidden),
    )
    b.parent = "attn"
    q, k, v = (b.linear(name, hidden, width) for name in ("q_proj", "k_proj", "v_proj"))
    out = b.linear("o_proj", width, hidden)
    second = norm_of(b, "post_mlp_layernorm", hidden)

    def attention(m: Machine, x: Tensor) -> Tensor:
        query, key, value = apply(m, q, x), apply(m, k, x), apply(m, v, x)
        query, key = parts.rope(m, query, key, tables[-1])
        shape = Shape(
            m.batch, m.sequence, m.sequence, heads, heads, head_dim, head_dim, drop, causal=False, float32_softmax=False
        )
        mixed = attend(m, query, key, value, shape)
        return apply(m, out, mixed)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        mixed = attention(m, x)
        x = ops.add(m, residual, ops.dropout(m, mixed, dropout))
        x = first(m, x)
        residual = x
        x = parts.gated_mlp(m, x, gate, up, down, act)
        x = ops.add(m, residual, ops.dropout(m, x, dropout))
        x = second(m, x)
        del mixed
        return x

    return block
