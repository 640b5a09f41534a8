"""Decoders built like Llama: RMS norm (or a layer norm in its place), rotary embedding, gated MLP, two residual additions.

One page with the few switches in which the families differ, read in transformers 5.24 `models/<type>/modeling_<type>.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import Linear, apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Parameter, Tensor
from memlint.models.architecture import Architecture

Norm = Callable[[Machine, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Style:
    """How a family deviates from Llama."""

    norm: str = "rms"
    """rms, gemma (times 1 + w in float32), rms_promoted (OLMo 2), layer (nn.LayerNorm), cohere (own float32 layer norm), bare."""
    norm_bias: bool = False
    pre_norms: bool = True
    post_norms: bool = False
    qk_norm: str = ""
    """"" or head (per head_dim) or full (over all heads at once)."""
    parallel: bool = False
    """Attention and MLP read the same normalised input (Cohere)."""
    fused_qkv: bool = False
    fused_gate_up: bool = False
    gated: bool = True
    scales_embedding: bool = False
    scales_residual: bool = False
    scales_logits: bool = False
    softcap: bool = False
    qkv_bias: bool | None = None
    """None: from the config's `attention_bias`."""
    out_bias: bool | None = None
    mlp_bias: bool | None = None
    halves_inner: bool = False
    """The config's `intermediate_size` counts both halves of the gated MLP (Qwen 1, `modeling_qwen.py` of the hub)."""
    names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


STYLES = {
    "qwen2": Style(qkv_bias=True, out_bias=False),
    "qwen": Style(qkv_bias=True, out_bias=False, fused_qkv=True, mlp_bias=False, halves_inner=True,
                  names=("c_attn", "", "", "c_proj", "w2", "w1", "c_proj")),
    "qwen3": Style(qk_norm="head"),
    "gemma": Style(norm="gemma", scales_embedding=True),
    "gemma2": Style(norm="gemma", scales_embedding=True, post_norms=True, softcap=True),
    "gemma3_text": Style(norm="gemma", scales_embedding=True, post_norms=True, qk_norm="head"),
    "gemma3": Style(norm="gemma", scales_embedding=True, post_norms=True, qk_norm="head"),
    "gemma4_text": Style(scales_embedding=True, post_norms=True, qk_norm="head"),
    "gemma4": Style(scales_embedding=True, post_norms=True, qk_norm="head"),
    "granite": Style(scales_embedding=True, scales_residual=True, scales_logits=True),
    "olmo": Style(norm="bare"),
    "olmo2": Style(norm="rms_promoted", pre_norms=False, post_norms=True, qk_norm="full"),
    "olmo3": Style(norm="rms_promoted", pre_norms=False, post_norms=True, qk_norm="full"),
    "phi3": Style(fused_qkv=True, fused_gate_up=True, names=("qkv_proj", "", "", "o_proj", "gate_up_proj", "", "down_proj")),
    "cohere": Style(norm="cohere", parallel=True, scales_logits=True),
    "cohere2": Style(norm="cohere", parallel=True, scales_logits=True),
    "starcoder2": Style(norm="layer", norm_bias=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True,
                        names=("q_proj", "k_proj", "v_proj", "o_proj", "", "c_fc", "c_proj")),
    "stablelm": Style(norm="layer", norm_bias=True, out_bias=False),
    "stablelm_epoch": Style(norm="layer", norm_bias=True, out_bias=False),
    "internlm2": Style(fused_qkv=True, names=("wqkv", "", "", "wo", "w1", "w3", "w2")),
    "internlm": Style(qkv_bias=True, out_bias=True),
    "baichuan": Style(fused_qkv=True, names=("W_pack", "", "", "o_proj", "gate_proj", "up_proj", "down_proj")),
    "glm": Style(qkv_bias=True, out_bias=False, fused_gate_up=True,
                 names=("q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "", "down_proj")),
    "glm4": Style(qkv_bias=True, out_bias=False, fused_gate_up=True, post_norms=True,
                  names=("q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "", "down_proj")),
    "chatglm": Style(fused_qkv=True, fused_gate_up=True, qkv_bias=True, out_bias=False,
                     names=("query_key_value", "", "", "dense", "dense_h_to_4h", "", "dense_4h_to_h")),
    "apertus": Style(gated=False, qk_norm="head", names=("q_proj", "k_proj", "v_proj", "o_proj", "", "up_proj", "down_proj")),
    "arcee": Style(gated=False, names=("q_proj", "k_proj", "v_proj", "o_proj", "", "up_proj", "down_proj")),
    "exaone4": Style(pre_norms=False, post_norms=True, qk_norm="head"),
    "hunyuan_v1_dense": Style(qk_norm="head"),
    "nemotron": Style(norm="layer", norm_bias=True, gated=False,
                      names=("q_proj", "k_proj", "v_proj", "o_proj", "", "up_proj", "down_proj")),
}  # fmt: skip


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The whole decoder with `layers` blocks."""
    style = STYLES.get(a.model_type, Style())
    hidden = a.hidden_size or 0
    head_dim = a.head_dim or hidden // (a.heads or 1)
    b.enter_layer(-1)
    table = b.embedding("embed_tokens", b.setup.vocabulary, hidden)
    tables: list[tuple[Tensor, Tensor]] = []
    rotary = float(a.config.get("partial_rotary_factor") or 1.0)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        x = ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens))
        if style.scales_embedding:
            x = ops.scale(m, x)
        tables[:] = [parts.rotary_tables(m, int(head_dim * rotary), x.itemsize)]
        return x

    blocks = [_block(b, a, style, index, head_dim, rotary, tables) for index in range(layers)]
    b.enter_layer(-1)
    final = _norm(b, style, "norm", hidden)

    classes = b.setup.vocabulary if b.setup.objective in LANGUAGE else b.setup.num_labels
    name = "lm_head" if b.setup.objective in LANGUAGE else "score"
    head_linear = b.linear(name, hidden, classes, tied=table if b.setup.tied and name == "lm_head" else None)

    def head(m: Machine, x: Tensor) -> Tensor:
        logits = apply(m, head_linear, x)
        return ops.scale(m, logits) if style.scales_logits else logits

    return Model([Stage(embed, blocks, final)], head, head_linear, hidden, classes)


LANGUAGE = {"causal_lm", "masked_lm", "seq2seq_lm", "dpo", "kto", "orpo", "cpo", "grpo", "ppo", "rloo", "gkd", "speech_seq2seq",
            "ipo", "simpo", "distillation"}  # fmt: skip
"""Objectives whose logits range over the vocabulary."""


def _norm(b: Builder, style: Style, name: str, width: int, kind: str = "") -> Norm:
    """A normalisation of the family's kind."""
    kind = kind or style.norm
    if kind == "bare":
        return lambda m, x: parts.layer_norm(m, x, None, None, width)
    weight = b.norm(name, width)
    bias: Parameter | None = b.vector(f"{name}.bias", width) if style.norm_bias else None
    if kind == "layer":
        return lambda m, x: parts.layer_norm(m, x, weight, bias, width)
    if kind == "gemma":
        return lambda m, x: parts.gemma_norm(m, x, weight, width)
    if kind == "rms_promoted":
        return lambda m, x: parts.rms_norm_promoted(m, x, weight, width)
    if kind == "cohere":
        return lambda m, x: _cohere_norm(m, x, weight, width)
    return lambda m, x: parts.rms_norm(m, x, weight, width)


def _cohere_norm(m: Machine, x: Tensor, weight: Parameter, width: int) -> Tensor:
    """`CohereLayerNorm`: a layer norm spelt out in float32."""
    dtype = x.itemsize
    x = ops.cast(m, x, 4)
    mean = ops.mean_last(m, x, width)
    variance = ops.mean_last(m, ops.power(m, ops.add(m, x, mean)), width)
    x = ops.mul(m, ops.add(m, x, mean), ops.small(m, ops.shift(m, variance)))
    x = ops.mul(m, ops.cast(m, weight, 4), x)
    return ops.cast(m, x, dtype)


def _block(
    b: Builder,
    a: Architecture,
    style: Style,
    index: int,
    head_dim: int,
    rotary: float,
    tables: list[tuple[Tensor, Tensor]],
) -> Block:
    b.enter_layer(index)
    hidden = a.hidden_size or 0
    attention = attention_of(b, a, style, head_dim, rotary, tables)
    feed_forward = mlp_of(b, a, style)
    before_attention = _norm(b, style, "input_layernorm", hidden) if style.pre_norms else None
    after_attention = _norm(b, style, "post_attention_layernorm", hidden) if style.post_norms else None
    shared = style.parallel or bool(a.config.get("use_parallel_residual"))
    before_mlp = _norm(b, style, "pre_feedforward_layernorm", hidden) if style.pre_norms and not shared else None
    after_mlp = _norm(b, style, "post_feedforward_layernorm", hidden) if style.post_norms else None

    def parallel(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        assert before_attention is not None
        x = before_attention(m, x)
        mixed = attention(m, x)
        x = feed_forward(m, x)
        return ops.add(m, ops.add(m, residual, mixed), x)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        if before_attention is not None:
            x = before_attention(m, x)
        x = attention(m, x)
        if after_attention is not None:
            x = after_attention(m, x)
        if style.scales_residual:
            x = ops.scale(m, x)
        x = ops.add(m, residual, x)
        residual = x
        if before_mlp is not None:
            x = before_mlp(m, x)
        x = feed_forward(m, x)
        if after_mlp is not None:
            x = after_mlp(m, x)
        if style.scales_residual:
            x = ops.scale(m, x)
        return ops.add(m, residual, x)

    return parallel if shared else block


def attention_of(
    b: Builder, a: Architecture, style: Style, head_dim: int, rotary: float, tables: list[tuple[Tensor, Tensor]]
) -> Callable[[Machine, Tensor], Tensor]:
    """Projections, query/key norms, rotary embedding, the attention core and the output projection."""
    b.parent = "attn"
    hidden, heads = a.hidden_size or 0, a.heads or 1
    kv_heads = a.kv_heads or heads
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    qkv_bias = _flag(style.qkv_bias, a, "attention_bias", "use_qkv_bias", "qkv_bias", "add_qkv_bias")
    out_bias = _flag(style.out_bias, a, "attention_bias")
    names = style.names
    softcap = style.softcap and bool(a.config.get("attn_logit_softcapping"))
    dropout = float(a.dropouts.get("attention_dropout", 0.0))
    if style.fused_qkv:
        fused: Linear | None = b.linear(names[0], hidden, q_width + 2 * kv_width, qkv_bias)
        singles: tuple[Linear, ...] = ()
    else:
        fused = None
        widths = (q_width, kv_width, kv_width)
        singles = tuple(b.linear(n, hidden, w, qkv_bias) for n, w in zip(names[:3], widths, strict=True))
    out = b.linear(names[3], q_width, hidden, out_bias)
    norms: tuple[Norm, Norm] | None = None
    if style.qk_norm:
        wide = style.qk_norm == "full"
        norms = (
            _norm(b, style, "q_norm", q_width if wide else head_dim, "rms" if style.norm == "layer" else ""),
            _norm(b, style, "k_norm", kv_width if wide else head_dim, "rms" if style.norm == "layer" else ""),
        )

    def attention(m: Machine, x: Tensor) -> Tensor:
        if fused is not None:
            rows = x.numel // hidden
            q, k, v = ops.split(m, apply(m, fused, x), (rows * q_width, rows * kv_width, rows * kv_width))
        else:
            q = apply(m, singles[0], x)
            if norms is not None:
                q = norms[0](m, q)
            k = apply(m, singles[1], x)
            if norms is not None:
                k = norms[1](m, k)
            v = apply(m, singles[2], x)
        q, k = parts.rope(m, q, k, tables[-1], rotary)
        shape = Shape(m.batch, m.sequence, m.sequence, heads, kv_heads, head_dim, head_dim, dropout, softcap=softcap)
        mixed = attend(m, q, k, v, shape)
        del q, k, v
        return apply(m, out, mixed)

    return attention


def mlp_of(b: Builder, a: Architecture, style: Style) -> Callable[[Machine, Tensor], Tensor]:
    """The feed-forward part."""
    b.parent = "mlp"
    hidden, inner = a.hidden_size or 0, a.intermediate_size or 0
    if style.halves_inner:
        inner //= 2
    bias = _flag(style.mlp_bias, a, "mlp_bias")
    names, act = style.names, a.activation or "silu"
    if style.fused_gate_up:
        both, down = b.linear(names[4], hidden, 2 * inner, bias), b.linear(names[6], inner, hidden, bias)

        def fused(m: Machine, x: Tensor) -> Tensor:
            rows = x.numel // hidden
            gate, up = ops.split(m, apply(m, both, x), (rows * inner, rows * inner))
            return apply(m, down, ops.mul(m, up, parts.activation(m, gate, act)))

        return fused
    if not style.gated:
        up, down = b.linear(names[5], hidden, inner, bias), b.linear(names[6], inner, hidden, bias)
        return lambda m, x: parts.mlp(m, x, up, down, act)
    gate = b.linear(names[4], hidden, inner, bias)
    up = b.linear(names[5], hidden, inner, bias)
    down = b.linear(names[6], inner, hidden, bias)
    return lambda m, x: parts.gated_mlp(m, x, gate, up, down, act)


def _flag(fixed: bool | None, a: Architecture, *keys: str) -> bool:
    if fixed is not None:
        return fixed
    return any(bool(_config(a, key)) for key in keys)


def _config(a: Architecture, key: str) -> Any:
    return a.config.get(key)
