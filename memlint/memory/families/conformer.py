"""Wav2Vec2-BERT: conformer blocks over a spectrogram - feed-forward, attention by distance, causal convolution, feed-forward.

Read in transformers 5.24 `models/wav2vec2_bert/modeling_wav2vec2_bert.py`. The sequence length counts frames of the spectrogram; layer
drop, masking in time and the adapter behind the encoder are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.memory import convolutions, ops
from memlint.memory.attention import Shape, attend, in_dtype_of
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.encoder import norm_of
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.families.speech import headed
from memlint.memory.linear import Linear, apply
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.tensor import BYTE, INT64, Parameter, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import Any


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Projection of the features, blocks and the head of the objective."""
    config, hidden = a.config, a.hidden_size or 1024
    if config.get("position_embeddings_type", "relative_key") != "relative_key" or config.get("add_adapter"):
        raise CannotEstimate(f"no memory page for the positions or the adapter of {a.name}")
    width = int(config.get("feature_projection_input_dim") or 160)
    dropout, between = float(config.get("hidden_dropout") or 0.0), float(config.get("feat_proj_dropout") or 0.0)
    b.enter_layer(-1)
    norm, project = norm_of(b, "layer_norm", width), b.linear("projection", width, hidden, bias=True)
    if config.get("mask_time_prob", 0.05) or config.get("mask_feature_prob"):
        b.parameter("masked_spec_embed", "token", (hidden,))
    features: list[Tensor] = []
    projected: list[Tensor] = []
    """What a variable of the model's holds until the encoder has run."""

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        features[:] = [m.new(m.tokens * width, b.setup.weight_itemsize)]
        x = norm(m, features[0])
        m.named.append(x)  # its output holds what was normalised, `extract_features`
        x = ops.dropout(m, apply(m, project, x), between)
        projected[:] = [x]
        x = _unpadded(m, x)
        in_dtype_of(m, x)
        return ops.dropout(m, x, dropout)

    blocks = [_block(b, config, a, index) for index in range(layers)]
    b.enter_layer(-1)

    def finish(m: Machine, x: Tensor) -> Tensor:
        projected.clear()
        return x

    return headed(b, config, Stage(embed, blocks, finish), hidden)


def _unpadded(m: Machine, x: Tensor) -> Tensor:
    """`masked_fill(~mask.bool().unsqueeze(-1), 0)`, where samples are padded."""
    return ops.masked_fill(m, x, m.new(m.tokens, BYTE)) if m.mask is not None else x


def _block(b: Builder, config: Mapping[str, Any], a: Architecture, index: int) -> Block:
    b.enter_layer(index)
    hidden, heads = a.hidden_size or 1024, a.heads or 16
    inner, act, size = a.intermediate_size or 4 * hidden, a.activation or "swish", hidden // heads
    drops = {key: float(config.get(key) or 0.0) for key in ("activation_dropout", "hidden_dropout", "attention_dropout")}

    def feed_forward(name: str) -> tuple[Linear, Linear]:
        b.parent = "mlp"
        return b.linear("intermediate_dense", hidden, inner, bias=True), b.linear("output_dense", inner, hidden, bias=True)

    norms = {
        name: norm_of(b, name, hidden)
        for name in ("ffn1_layer_norm", "self_attn_layer_norm", "ffn2_layer_norm", "final_layer_norm")
    }
    first, last = feed_forward("ffn1"), feed_forward("ffn2")
    b.parent = "attn"
    q, k, v, out = (b.linear(name, hidden, hidden, bias=True) for name in ("linear_q", "linear_k", "linear_v", "linear_out"))
    rows = int(config.get("left_max_position_embeddings") or 64) + int(config.get("right_max_position_embeddings") or 8) + 1
    distances = b.embedding("distance_embedding", rows, size)
    convolution = _convolution(b, config, hidden, act)

    def fed(m: Machine, x: Tensor, pair: tuple[Linear, Linear]) -> Tensor:
        x = parts.activation(m, apply(m, pair[0], x), act)
        x = ops.dropout(m, x, drops["activation_dropout"])
        x = apply(m, pair[1], x)
        return ops.dropout(m, x, drops["hidden_dropout"])

    def attention(m: Machine, x: Tensor) -> Tensor:
        shape = Shape(m.batch, m.sequence, m.sequence, heads, heads, size, size, drops["attention_dropout"], causal=False,
                      float32_softmax=False)  # fmt: skip
        query, key, value = apply(m, q, x), apply(m, k, x), apply(m, v, x)
        bias = _by_distance(m, query, distances, shape)
        return apply(m, out, attend(m, query, key, value, shape, bias))

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        x = fed(m, norms["ffn1_layer_norm"](m, x), first)
        x = residual = ops.add(m, ops.scale(m, x), residual)
        x = attention(m, norms["self_attn_layer_norm"](m, x))
        x = ops.dropout(m, x, drops["attention_dropout"])
        x = residual = ops.add(m, x, residual)
        x = convolution(m, x, None)
        x = residual = ops.add(m, residual, x)
        x = fed(m, norms["ffn2_layer_norm"](m, x), last)
        x = ops.add(m, ops.scale(m, x), residual)
        return norms["final_layer_norm"](m, x)

    return block


def _by_distance(m: Machine, query: Tensor, table: Parameter, shape: Shape) -> Tensor:
    """`_apply_relative_key_position_encoding`: each query times a vector for each distance (`einsum`, which lays the queries out anew)."""
    pairs = m.sequence * m.sequence
    distance = [m.new(numbers, INT64) for numbers in (m.sequence, m.sequence, pairs)]
    vectors = ops.embedding(m, table, shape.head_dim, pairs, m.new(pairs, INT64), inputs=False)
    vectors = ops.cast(m, vectors, query.itemsize)
    bias = ops.scale(m, ops.matmul(m, ops.copy(m, query), vectors, shape.scores))
    del distance
    return bias


def _convolution(b: Builder, config: Mapping[str, Any], hidden: int, act: str) -> Block:
    """Two pointwise convolutions around a gate and a causal depthwise one."""
    kernel = int(config.get("conv_depthwise_kernel_size") or 31)
    dropout = float(config.get("conformer_conv_dropout") or 0.0)
    norm = norm_of(b, "conv_module.layer_norm", hidden)
    into = b.parameter("pointwise_conv1", "conv", (2 * hidden, hidden))
    depthwise = b.parameter("depthwise_conv", "conv", (hidden, kernel))
    inner_norm = norm_of(b, "depthwise_layer_norm", hidden)
    back = b.parameter("pointwise_conv2", "conv", (hidden, hidden))

    def run(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        numel = x.numel
        x = _unpadded(m, norm(m, x))
        x = _glu(m, convolutions.convolution(m, x, into, None, 2 * numel))
        x = ops.pad(m, x, numel + m.batch * hidden * (kernel - 1))
        x = convolutions.depthwise_conv(m, x, depthwise, numel)
        x = inner_norm(m, x)
        x = parts.activation(m, x, act)
        x = convolutions.convolution(m, x, back, None, numel)
        return ops.dropout(m, x, dropout)

    return run


def _glu(m: Machine, x: Tensor) -> Tensor:
    """`F.glu`: keeps its input."""
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(m.new(numel // 2, itemsize), (x,), lambda g: (m.new(numel, itemsize),), (x.storage,))
