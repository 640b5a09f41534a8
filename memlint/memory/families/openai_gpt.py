"""The first GPT: post-norm blocks whose attention multiplies its scores by a triangle, operation by operation.

Read in transformers 5.24 `models/openai/modeling_openai.py`.
"""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder import norm_of
from memlint.memory.families.llama import LANGUAGE
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, INT64, Tensor
from memlint.models.architecture import Architecture

ACTIVATIONS = {"gelu": "gelu_new", "swish": "silu"}
"""What its names of activations mean (`ACT_FNS`)."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The whole decoder with `layers` blocks."""
    hidden, rows = a.hidden_size or 768, a.max_positions or 512
    dropout = float(a.dropouts.get("embd_pdrop", 0.0))
    b.enter_layer(-1)
    table = b.embedding("tokens_embed", b.setup.vocabulary, hidden)
    places = b.embedding("positions_embed", rows, hidden)
    ids = b.buffer(rows, INT64)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        x = ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens))
        x = ops.add(m, x, ops.embedding(m, places, hidden, m.sequence, ids, inputs=False))
        if m.mask is not None:
            m.mask = m.new(m.tokens, b.setup.weight_itemsize)
        return ops.dropout(m, ops.shift(m, x), dropout)

    blocks = [_block(b, a, index, rows) for index in range(layers)]
    b.enter_layer(-1)
    language = b.setup.objective in LANGUAGE
    classes = b.setup.vocabulary if language else b.setup.num_labels
    head = b.linear("lm_head" if language else "score", hidden, classes, tied=table if b.setup.tied and language else None)
    return Model([Stage(embed, blocks, lambda m, x: x)], lambda m, x: apply(m, head, x), head, hidden, classes)


def _block(b: Builder, a: Architecture, index: int, rows: int) -> Block:
    b.enter_layer(index)
    hidden, heads = a.hidden_size or 768, a.heads or 12
    act = str(a.config.get("afn") or "gelu")
    act = ACTIVATIONS.get(act, act)
    attention_drop, residual_drop = (float(a.dropouts.get(key, 0.0)) for key in ("attn_pdrop", "resid_pdrop"))
    triangle = b.buffer(rows * rows, b.setup.weight_itemsize)
    b.parent = "attn"
    fused, out = b.linear("c_attn", hidden, 3 * hidden, bias=True), b.linear("c_proj", hidden, hidden, bias=True)
    first = norm_of(b, "ln_1", hidden)
    b.parent = "mlp"
    up, down = b.linear("c_fc", hidden, 4 * hidden, bias=True), b.linear("c_proj", 4 * hidden, hidden, bias=True)
    second = norm_of(b, "ln_2", hidden)

    def attention(m: Machine, x: Tensor) -> Tensor:
        each, pairs = x.numel, m.sequence * m.sequence
        q, k, v = ops.split(m, apply(m, fused, x), (each, each, each))
        weights = ops.scale(m, ops.matmul(m, ops.copy(m, q), ops.copy(m, k), m.batch * heads * pairs))
        seen = Tensor(triangle.storage, pairs, triangle.itemsize)
        masked = ops.mul(m, weights, seen)
        hidden_pairs = m.new(pairs, triangle.itemsize)
        weights = ops.add(m, masked, hidden_pairs)
        del masked, hidden_pairs
        if m.mask is not None:
            weights = ops.add(m, weights, m.mask)
        itemsize = FP32 if m.autocast else weights.itemsize
        weights = ops.dropout(m, ops.softmax(m, ops.cast(m, weights, itemsize), itemsize), attention_drop)
        mixed = ops.copy(m, ops.matmul(m, weights, ops.copy(m, ops.autocast(m, v)), each))
        return ops.dropout(m, apply(m, out, mixed), residual_drop)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        mixed = attention(m, x)
        normed = first(m, ops.add(m, x, mixed))
        inner = parts.activation(m, apply(m, up, normed), act)
        fed = ops.dropout(m, apply(m, down, inner), residual_drop)
        del inner
        return second(m, ops.add(m, normed, fed))

    return block
