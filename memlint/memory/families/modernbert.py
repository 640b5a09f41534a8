"""ModernBERT: pre-norm encoder, fused QKV, rotary embedding in float32, gated MLP, sliding windows in most layers.

Read in transformers 5.24 `models/modernbert/modeling_modernbert.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.attention import Shape, attend, in_dtype_of
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder import POOLED_HEADS_ONLY
from memlint.memory.families.llama import LANGUAGE, is_windowed
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The encoder and the head of the objective."""
    hidden, config = a.hidden_size or 0, a.config
    if (
        layers < b.setup.layers
        and b.machine.sequence > int(config.get("sliding_window") or config.get("local_attention") or 0) // 2
    ):
        raise NotUniform
    b.enter_layer(-1)
    table = b.embedding("tok_embeddings", b.setup.vocabulary, hidden)
    norm = _norm(b, a, "norm", hidden)
    dropout = float(config.get("embedding_dropout") or 0.0)
    head_dim = hidden // (a.heads or 1)
    tables: list[tuple[Tensor, Tensor]] = []
    unused: list[Tensor] = []  # the window's mask is made even where no layer has a window
    blocks = []
    for index in range(layers):
        b.enter_layer(index)
        blocks.append(_block(b, a, index, tables))
    b.enter_layer(-1)
    final = _norm(b, a, "final_norm", hidden)
    kinds = len({is_windowed(a, index) for index in range(b.setup.layers)})
    window = any(is_windowed(a, index) for index in range(b.setup.layers))

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        x = ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, 0))  # the batch holds the ids
        x = ops.dropout(m, norm(m, x), dropout)
        in_dtype_of(m, x)
        m.shared = []
        if not m.attention.startswith("flash"):
            eager = m.attention == "eager"
            rows = m.batch if eager or m.mask is not None else 1
            itemsize = x.itemsize if eager else BYTE
            (m.shared if window else unused).append(m.new(rows * m.sequence * m.sequence, itemsize))
        tables[:] = [parts.rotary_tables(m, head_dim, x.itemsize) for _ in range(kinds)]
        return x

    def finish(m: Machine, x: Tensor) -> Tensor:
        x = final(m, x)
        m.shared = []
        unused.clear()
        return x

    stage = Stage(embed, blocks, finish)
    dense = b.linear("dense", hidden, hidden, bias=bool(config.get("classifier_bias")))
    head_norm = _norm(b, a, "norm", hidden)
    act = str(config.get("classifier_activation") or "gelu")
    if b.setup.objective in LANGUAGE:
        biased = bool(config.get("decoder_bias", True))
        decoder = b.linear("decoder", hidden, b.setup.vocabulary, biased, table if b.setup.tied else None)

        def language(m: Machine, x: Tensor) -> Tensor:
            return apply(m, decoder, head_norm(m, parts.activation(m, apply(m, dense, x), act)))

        return Model([stage], language, decoder, hidden, b.setup.vocabulary, causal=False)
    classifier = b.linear("classifier", hidden, b.setup.num_labels, bias=True)
    averaged = str(config.get("classifier_pooling") or "cls") == "mean"

    def classify(m: Machine, x: Tensor) -> Tensor:
        if averaged and b.setup.objective in POOLED_HEADS_ONLY:
            x = ops.sum_groups(m, x, m.batch * hidden)
        x = head_norm(m, parts.activation(m, apply(m, dense, x), act))
        return apply(m, classifier, ops.dropout(m, x, float(config.get("classifier_dropout") or 0.0)))

    return Model([stage], classify, None, hidden, b.setup.num_labels, causal=False)


def _norm(b: Builder, a: Architecture, name: str, width: int) -> Callable[[Machine, Tensor], Tensor]:
    weight = b.norm(name, width)
    bias = b.vector(f"{name}.bias", width) if a.config.get("norm_bias") else None
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


def _rotated(m: Machine, q: Tensor, k: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """`apply_rotary_pos_emb`: each use raises the operand to float32 by itself, the sums are cast back."""
    q_embed, k_embed = _turned(m, q, *tables), _turned(m, k, *tables)
    return ops.cast(m, q_embed, q.itemsize), ops.cast(m, k_embed, k.itemsize)


def _turned(m: Machine, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left = ops.mul(m, ops.cast(m, x, FP32), cos)
    return ops.add(m, left, ops.mul(m, parts.rotate_half(m, ops.cast(m, x, FP32)), sin))


def _block(b: Builder, a: Architecture, index: int, tables: list[tuple[Tensor, Tensor]]) -> Block:
    hidden, heads, config = a.hidden_size or 0, a.heads or 1, a.config
    inner, head_dim = a.intermediate_size or 0, hidden // heads
    first = _norm(b, a, "attn_norm", hidden) if index else None
    b.parent = "attn"
    qkv = b.linear("Wqkv", hidden, 3 * hidden, bool(config.get("attention_bias")))
    out = b.linear("Wo", hidden, hidden, bool(config.get("attention_bias")))
    second = _norm(b, a, "mlp_norm", hidden)
    b.parent = "mlp"
    wi = b.linear("Wi", hidden, 2 * inner, bool(config.get("mlp_bias")))
    wo = b.linear("Wo", inner, hidden, bool(config.get("mlp_bias")))
    act = a.activation or "gelu"
    drop, mlp_drop = float(config.get("attention_dropout") or 0.0), float(config.get("mlp_dropout") or 0.0)
    sliding = is_windowed(a, index)

    def attention(m: Machine, x: Tensor) -> Tensor:
        q, k, v = ops.split(m, apply(m, qkv, x), (x.numel, x.numel, x.numel))
        q, k = _rotated(m, q, k, tables[-1])
        shape = Shape(m.batch, m.sequence, m.sequence, heads, heads, head_dim, head_dim, drop, causal=False)
        kept = m.mask
        if sliding and m.shared:
            m.mask = m.shared[0]
        mixed = attend(m, q, k, v, shape)
        m.mask = kept
        mixed = apply(m, out, mixed)
        return ops.dropout(m, mixed, drop)

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        both = apply(m, wi, x)
        value, gate = ops.split(m, both, (both.numel // 2, both.numel // 2))
        return apply(m, wo, ops.dropout(m, ops.mul(m, parts.activation(m, value, act), gate), mlp_drop))

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        attended = attention(m, first(m, x) if first is not None else x)
        x = ops.add(m, x, attended)
        return ops.add(m, x, feed_forward(m, second(m, x)))

    return block
