"""T5Gemma: Gemma 2's blocks as an encoder and as a decoder that looks at it, each with an embedding of its own.

Read in transformers 5.24 `models/t5gemma/modeling_t5gemma.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder_decoder import target_length, two_stacks
from memlint.memory.families.llama import Part, Rotary, attention_of, block_of, mlp_of, norm_of, rotary_of
from memlint.memory.families.llama_styles import STYLES
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Parameter, Tensor
from memlint.models import from_config
from memlint.models.architecture import Architecture

STYLE = STYLES["gemma2"]


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Encoder, decoder and language head."""
    two_stacks(b, layers)
    sides = [_side(a, name) for name in ("encoder", "decoder")]
    encoder, _ = _stack(b, sides[0], 0, 0)
    decoder, table = _stack(b, sides[1], sides[0].layers or 0, sides[0].hidden_size or 0)
    hidden = sides[1].hidden_size or 0
    linear = b.linear("out_proj", hidden, b.setup.vocabulary, tied=table if a.config.get("tie_word_embeddings", True) else None)
    capped = bool(sides[1].config.get("final_logit_softcapping"))

    def head(m: Machine, x: Tensor) -> Tensor:
        logits = apply(m, linear, x)
        return ops.scale(m, ops.unary(m, ops.scale(m, logits), keeps="output")) if capped else logits

    return Model([encoder, decoder], head, linear, hidden, b.setup.vocabulary, causal=False)


def _side(a: Architecture, name: str) -> Architecture:
    part = a.config.get(name)
    return from_config(part if isinstance(part, Mapping) else {}, f"{a.name}'s {name}")


def _stack(b: Builder, a: Architecture, first: int, looks_at: int) -> tuple[Stage, Parameter]:
    """One side; `looks_at`: the width of the encoder's states, 0 for the encoder itself."""
    hidden, source = a.hidden_size or 0, b.machine.sequence
    length = target_length(b) if looks_at else source
    b.enter_layer(-1)
    table = b.embedding("embed_tokens", b.setup.vocabulary, hidden)
    rotary = rotary_of(a)
    blocks: list[Block] = []
    for index in range(a.layers or 0):
        b.enter_layer(first + index)
        attention = attention_of(b, a, STYLE, rotary, index)
        blocks.append(_decoder_block(b, a, index, attention, looks_at, rotary) if looks_at else
                      block_of(b, a, STYLE, index, attention, mlp_of))  # fmt: skip
    b.enter_layer(-1)
    final = norm_of(b, STYLE, "norm", hidden)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.sequence = length
        x = ops.scale(m, ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens)))
        # Masks of its own, for attention in full and in a window, whether or not samples are padded; one of the other side if they are.
        m.mask = m.new(m.batch * length * length, x.itemsize)
        keys = (length, source) if looks_at and b.setup.padding_mask else (length,)
        m.shared = [m.new(m.batch * length * each, x.itemsize) for each in keys]
        rotary.tables[:] = [parts.rotary_tables(m, rotary.width, x.itemsize)]
        return x

    def finish(m: Machine, x: Tensor) -> Tensor:
        m.shared = []
        return final(m, x)

    return Stage(embed, blocks, finish), table


def _decoder_block(b: Builder, a: Architecture, index: int, itself: Part, looks_at: int, rotary: Rotary) -> Block:
    hidden = a.hidden_size or 0
    cross = _cross_attention(b, a, looks_at, rotary.head_dim)
    fed = mlp_of(b, a, STYLE, index)
    norms = [
        (norm_of(b, STYLE, f"pre_{name}_layernorm", hidden), norm_of(b, STYLE, f"post_{name}_layernorm", hidden))
        for name in ("self_attn", "cross_attn", "feedforward")
    ]

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        assert context is not None
        residual = x
        x = norms[0][1](m, itself(m, norms[0][0](m, x)))
        x = residual = ops.add(m, residual, x)
        x = norms[1][1](m, cross(m, norms[1][0](m, x), context))
        x = residual = ops.add(m, residual, x)
        x = norms[2][1](m, fed(m, norms[2][0](m, x)))
        return ops.add(m, residual, x)

    return block


def _cross_attention(b: Builder, a: Architecture, looks_at: int, size: int) -> Callable[[Machine, Tensor, Tensor], Tensor]:
    b.parent = "cross_attn"
    hidden, heads, bias = a.hidden_size or 0, a.heads or 1, bool(a.config.get("attention_bias"))
    kv_heads, source = a.kv_heads or heads, b.machine.sequence
    q = b.linear("q_proj", hidden, heads * size, bias)
    k, v = (b.linear(name, looks_at, kv_heads * size, bias) for name in ("k_proj", "v_proj"))
    out = b.linear("o_proj", heads * size, hidden, bias)
    softcap = bool(a.config.get("attn_logit_softcapping"))
    drop = float(a.dropouts.get("attention_dropout", 0.0))

    def attention(m: Machine, x: Tensor, context: Tensor) -> Tensor:
        shape = Shape(m.batch, m.sequence, source, heads, kv_heads, size, size, drop, causal=False, softcap=softcap)
        kept, m.mask = m.mask, m.shared[1] if len(m.shared) > 1 else None
        mixed = attend(m, apply(m, q, x), apply(m, k, context), apply(m, v, context), shape)
        m.mask = kept
        return apply(m, out, mixed)

    return attention
