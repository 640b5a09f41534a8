"""Decoders built like Llama: RMS norm (or a layer norm in its place), rotary embedding, gated MLP, two residual additions.

One page with the few switches in which the families differ, read in transformers 5.24 `models/<type>/modeling_<type>.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.llama_styles import STYLES, Style
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import Linear, apply
from memlint.memory.lora_kernels import fused_linear, fused_projections, fuses
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, Parameter, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture
from memlint.typed import Any

Norm = Callable[[Machine, Tensor], Tensor]


class Rotary:
    """How positions enter the attention of a model: `width` rotated dimensions of each head, and the tables of this step."""

    def __init__(self, head_dim: int, width: int) -> None:
        self.head_dim = head_dim
        self.width = width
        self.tables: list[tuple[Tensor, Tensor]] = []

    @property
    def share(self) -> float:
        """The rotated part of each head."""
        return self.width / self.head_dim


Part = Callable[[Machine, Tensor], Tensor]
MakeAttention = Callable[[Builder, Architecture, Style, Rotary, int], Part]
"""(builder, architecture, style, rotary embedding, layer) -> attention."""
MakeMlp = Callable[[Builder, Architecture, Style, int], Part]
"""(builder, architecture, style, layer) -> feed-forward part."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The whole decoder with `layers` blocks."""
    return decoder(b, a, layers, STYLES.get(a.model_type, Style()))


def decoder(
    b: Builder,
    a: Architecture,
    layers: int,
    style: Style,
    attention: MakeAttention | None = None,
    mlp: MakeMlp | None = None,
    rotary: Rotary | None = None,
    halves: bool = True,
    block: Callable[[int, Rotary], Block] | None = None,
) -> Model:
    """A decoder of this style; `attention` and `mlp` make the two parts of a block where they are not Llama's.

    Without `halves` a block is what `attention` makes and nothing after it; `block` makes a layer as a whole.
    """
    hidden = a.hidden_size or 0
    b.enter_layer(-1)
    table = b.embedding("embed_tokens", b.setup.vocabulary + style.spare_rows, hidden)
    positions = rotary or rotary_of(a)
    kinds = set(a.config.get("layer_types") or ()) if style.tables_by_kind else (None,)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        x = ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens), style.scaled_table)
        if style.scales_embedding:
            x = ops.scale(m, x)
        if style.rotates:
            size = FP32 if style.float_tables else x.itemsize
            positions.tables[:] = [parts.rotary_tables(m, positions.width, size, style.own_positions) for _ in kinds]
        m.shared = []
        if window:
            rows = m.batch if m.mask is not None else 1
            m.shared.append(m.new(rows * m.sequence * m.sequence, m.mask.itemsize if m.mask is not None else BYTE))
        if slides and m.mask is not None:  # no block reads it
            m.embedded, m.mask = [m.mask], None
        return ops.scattered(m, x)

    def finish(m: Machine, x: Tensor) -> Tensor:
        m.shared = []
        return ops.gathered(m, final(m, x))

    window = windowed(b, a, layers)
    slides = window and all(is_windowed(a, index) for index in range(b.setup.layers))
    blocks: list[Block] = []
    for index in range(layers):
        b.enter_layer(index)
        if block is not None:
            blocks.append(block(index, positions))
            continue
        part = (attention or attention_of)(b, a, style, positions, index)
        blocks.append(block_of(b, a, style, index, part, mlp or mlp_of) if halves else branch_of(b, a, style, part))
    b.enter_layer(-1)
    final = norm_of(b, style, "norm", hidden)

    classes = b.setup.vocabulary if b.setup.objective in LANGUAGE else b.setup.num_labels
    name = "lm_head" if b.setup.objective in LANGUAGE else "score"
    tied = table if b.setup.tied and name == "lm_head" else None
    head_linear = b.linear(name, hidden, classes, bool(a.config.get("lm_head_bias")) and name == "lm_head", tied)

    capped = bool(a.config.get("final_logit_softcapping"))

    def head(m: Machine, x: Tensor) -> Tensor:
        if style.float_residual:
            x = ops.cast(m, x, b.setup.weight_itemsize)
        logits = apply(m, head_linear, x)
        if capped:
            logits = ops.scale(m, ops.unary(m, ops.scale(m, logits), keeps="output"))
        logits = ops.scale(m, logits) if style.scales_logits else logits
        return ops.cast(m, logits, FP32) if style.float_logits else logits

    return Model([Stage(embed, blocks, finish)], head, head_linear, hidden, classes, reads_all=True)


def is_windowed(a: Architecture, index: int) -> bool:
    """Whether a layer attends to a sliding window only."""
    kinds = a.config.get("layer_types")
    if isinstance(kinds, Sequence) and index < len(kinds):
        return bool(kinds[index] == "sliding_attention")
    return bool(a.config.get("sliding_window"))


def windowed(b: Builder, a: Architecture, layers: int) -> bool:
    """Whether the step has a mask of the sliding window beside the ordinary one (transformers 5.24, `masking_utils.py`).

    Eager attention always has it; SDPA when sequences are longer than the window, and then takes another kernel in these layers:
    raises `NotUniform` when only some layers are asked for although layers differ.
    """
    total = b.setup.layers
    sliding = [is_windowed(a, index) for index in range(total)]
    if not any(sliding) or b.setup.attention.startswith("flash"):
        return False
    exceeds = b.machine.sequence > int(a.config.get("sliding_window") or 0)
    if b.setup.attention == "sdpa" and exceeds and not all(sliding) and layers < total:
        raise NotUniform
    return exceeds or b.setup.attention == "eager" or b.setup.padding_mask


def rotary_of(a: Architecture) -> Rotary:
    """The rotary embedding of a configuration: `partial_rotary_factor` stands at the top or among `rope_parameters`."""
    head_dim = (a.hidden_size or 0) // (a.heads or 1)
    if a.model_type != "stablelm":  # it has no such key
        head_dim = a.head_dim or head_dim
    return Rotary(head_dim, int(head_dim * rotated_share(a)))


def rotated_share(a: Architecture) -> float:
    """The part of each head that is rotated."""
    parameters = a.config.get("rope_parameters")
    nested = parameters.get("partial_rotary_factor") if isinstance(parameters, Mapping) else None
    return float(nested or a.config.get("partial_rotary_factor") or 1.0)


LANGUAGE = {"causal_lm", "masked_lm", "seq2seq_lm", "dpo", "kto", "orpo", "cpo", "grpo", "ppo", "rloo", "gkd", "speech_seq2seq",
            "ipo", "simpo", "distillation"}  # fmt: skip
"""Objectives whose logits range over the vocabulary."""


def norm_of(b: Builder, style: Style, name: str, width: int, kind: str = "") -> Norm:
    """A normalisation of the family's kind."""
    kind = kind or style.norm
    if kind == "bare":
        return lambda m, x: ops.cast(m, parts.layer_norm(m, ops.cast(m, x, 4), None, None, width), x.itemsize)
    weight = b.norm(name, width)
    bias: Parameter | None = b.vector(f"{name}.bias", width) if style.norm_bias else None
    if kind == "layer":
        return lambda m, x: parts.layer_norm(m, x, weight, bias, width)
    if kind == "layer_plus":
        return lambda m, x: parts.layer_norm_plus(m, x, weight, bias, width)
    if kind == "gemma":
        return lambda m, x: parts.gemma_norm(m, x, weight, width)
    if kind == "rms_promoted":
        return lambda m, x: parts.rms_norm_promoted(m, x, weight, width)
    if kind == "cohere":
        return lambda m, x: parts.cohere_norm(m, x, weight, width)
    return lambda m, x: parts.rms_norm(m, x, weight, width)


def block_of(b: Builder, a: Architecture, style: Style, index: int, attention: Part, mlp: MakeMlp) -> Block:
    """Norms and residual additions around the two parts."""
    hidden = a.hidden_size or 0
    feed_forward = mlp(b, a, style, index)
    # Behind each of the two parts: Starcoder 2, Seed-OSS; Phi 3 calls it otherwise.
    behind = float(a.dropouts.get("residual_dropout", 0.0) or a.dropouts.get("resid_pdrop", 0.0))
    before_attention = norm_of(b, style, "input_layernorm", hidden) if style.pre_norms else None
    after_attention = norm_of(b, style, "post_attention_layernorm", hidden) if style.post_norms else None
    shared = style.parallel or bool(a.config.get("use_parallel_residual"))
    before_mlp = norm_of(b, style, "pre_feedforward_layernorm", hidden) if style.pre_norms and not shared else None
    after_mlp = norm_of(b, style, "post_feedforward_layernorm", hidden) if style.post_norms else None

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
        x = ops.dropout(m, ops.scattered(m, attention(m, ops.gathered(m, x))), behind)
        named = x if style.names_attention else None
        if after_attention is not None:
            x = after_attention(m, x)
        if style.scales_residual:
            x = ops.scale(m, x)
        x = ops.add(m, residual, x)
        residual = x
        if before_mlp is not None:
            x = before_mlp(m, x)
        x = ops.dropout(m, ops.scattered(m, feed_forward(m, ops.gathered(m, x))), behind)
        if after_mlp is not None:
            x = after_mlp(m, x)
        if style.scales_residual:
            x = ops.scale(m, x)
        x = ops.add(m, residual, x)
        del named
        return x

    return parallel if shared else block


def branch_of(b: Builder, a: Architecture, style: Style, part: Part) -> Block:
    """A block of one branch: norm, part, residual addition (Mamba, Nemotron-H)."""
    norm = norm_of(b, style, "norm", a.hidden_size or 0)
    size = b.setup.norm_itemsize

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        x = norm(m, ops.cast(m, x, size))
        if style.float_residual:
            residual = ops.cast(m, residual, FP32)
        return ops.add(m, residual, part(m, x))

    return block


def attention_of(b: Builder, a: Architecture, style: Style, rotary: Rotary, index: int) -> Part:
    """Projections, query/key norms, rotary embedding, the attention core and the output projection."""
    b.parent = "attn"
    hidden, heads = a.hidden_size or 0, a.heads or 1
    kv_heads = a.kv_heads or heads
    head_dim = rotary.head_dim
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    qkv_bias = _flag(style.qkv_bias, a, "attention_bias", "use_qkv_bias", "qkv_bias", "add_qkv_bias")
    out_bias = _flag(style.out_bias, a, "attention_out_bias" if "attention_out_bias" in a.config else "attention_bias")
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
    sliding = is_windowed(a, index)
    rotates = style.rotates and (sliding or not (style.rotates_windows and a.config.get("sliding_window")))
    sinks = b.vector("sinks", heads, "sink") if style.sinks else None
    norms: tuple[Norm, Norm] | None = None
    after_rotation = style.qk_norm == "rotated"
    if style.qk_norm and a.config.get("use_qk_norm", a.config.get("qk_layernorm", True)) is not False:
        wide = style.qk_norm == "full"
        norms = (
            norm_of(b, style, "q_norm", q_width if wide else head_dim),
            norm_of(b, style, "k_norm", kv_width if wide else head_dim),
        )

    elif a.config.get("use_qk_norm"):  # Cohere: statistics per head, a weight for every element
        q_weight, k_weight = b.norm("q_norm", q_width), b.norm("k_norm", kv_width)
        norms = (
            lambda m, x: parts.cohere_norm(m, x, q_weight, head_dim),
            lambda m, x: parts.cohere_norm(m, x, k_weight, head_dim),
        )

    elif a.config.get("qk_layernorm"):  # StableLM 2: one layer norm per head
        q_heads, k_heads = b.norm("q_layernorm", q_width), b.norm("k_layernorm", kv_width)
        norms = (
            lambda m, x: parts.layer_norm(m, x, q_heads, None, head_dim),
            lambda m, x: parts.layer_norm(m, x, k_heads, None, head_dim),
        )

    def attention(m: Machine, x: Tensor) -> Tensor:
        if fused is not None:
            rows = x.numel // hidden
            together = apply(m, fused, x)
            if style.splits_heads:
                q, k, v = (ops.narrow(m, together, rows * width) for width in (q_width, kv_width, kv_width))
            else:
                q, k, v = ops.split(m, together, (rows * q_width, rows * kv_width, rows * kv_width))
            del together
            if norms is not None:
                q, k = norms[0](m, q), norms[1](m, k)
        elif fuses(m, *singles):
            q, k, v = fused_projections(m, x, singles)
            if norms is not None and not after_rotation:
                q, k = norms[0](m, q), norms[1](m, k)
        else:
            q = apply(m, singles[0], x)
            if norms is not None and not after_rotation:
                q = norms[0](m, q)
            k = apply(m, singles[1], x)
            if norms is not None and not after_rotation:
                k = norms[1](m, k)
            v = apply(m, singles[2], x)
        if rotates:
            tables = parts.repeated_tables(m, rotary.tables[-1]) if style.repeats_tables else rotary.tables[-1]
            q, k = parts.rope(m, q, k, tables, rotary.share, style.float_tables)
            del tables
        if norms is not None and after_rotation:
            q = norms[0](m, q)
            k = norms[1](m, k)
        shape = Shape(
            m.batch,
            m.sequence,
            m.sequence,
            heads,
            kv_heads,
            head_dim,
            head_dim,
            dropout,
            softcap=softcap,
            sinks=sinks,
            sinks_scale=style.sinks == "scale",
            head_major=style.rope_concatenates or rotary.share < 1.0,
        )
        kept = m.mask
        if sliding and m.shared:
            m.mask = m.shared[0]
        mixed = attend(m, q, k, v, shape)
        m.mask = kept
        return fused_linear(m, mixed, out) if fuses(m, out) else apply(m, out, mixed)

    return attention


def mlp_of(b: Builder, a: Architecture, style: Style, index: int = 0, inner: int = 0, parent: str = "mlp") -> Part:
    """The feed-forward part, `inner` wide (0: as the configuration says), in a module called `parent`."""
    b.parent = parent
    hidden, inner = a.hidden_size or 0, inner or a.intermediate_size or 0
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
        if act == "xielu":
            slopes = (b.vector("alpha_p", 1, "activation"), b.vector("alpha_n", 1, "activation"))
            return lambda m, x: apply(m, down, parts.xielu(m, apply(m, up, x), *slopes))
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
