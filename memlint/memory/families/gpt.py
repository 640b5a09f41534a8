"""Decoders of the GPT line: layer norm with bias, plain MLP, learned, rotary or ALiBi positions.

Read in transformers 5.24 `models/<type>/modeling_<type>.py`; the families differ in the names and fusion of the projections, in where the
residual additions stand, and in dropout.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.llama import LANGUAGE, rotated_share
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import NamedTuple

SINUSOIDS = 2
"""Rows of XGLM's table of positions in front of the first one."""


class Style(NamedTuple):
    """How a family is put together."""

    qkv: tuple[str, ...]
    """One name: fused; three: separate."""
    out: str
    up: str
    down: str
    bias: bool = True
    attention_bias: bool | None = None
    """None: as `bias`."""
    positions: str = ""
    """"" (rotary or ALiBi), or the name of the learned position table."""
    position_offset: int = 0
    rotary: str = ""
    """Config key of the share of each head (or the dimensions) that is rotated; "all" rotates everything."""
    alibi: bool = False
    parallel: bool = False
    two_norms: bool = True
    """A second normalisation in front of the MLP."""
    residual_dropout: str = ""
    attention_dropout: str = ""
    embedding_dropout: str = ""
    mlp_dropout: str = ""
    embedding_norm: bool = False
    head_bias: bool = False
    table: str = "wte"
    head: str = "lm_head"
    final_norm: bool = True
    float32_softmax: bool = True
    narrows: bool = False
    float32_scores: bool = False
    sinusoids: bool = False
    """Positions are a fixed table, a buffer (XGLM)."""
    scaled_table: bool = False
    """The embedding module itself scales."""
    floors: bool = False
    """Eager attention keeps masked scores above the dtype's least number."""
    float_tables: bool = False
    """The tables of the rotary embedding are float32; queries and keys are cast back (CodeGen)."""
    repeats_tables: bool = False
    """Every layer makes each number of the tables twice, for the keys and for the queries (GPT-J, CodeGen)."""
    activation_dropout: str = ""
    boolean_mask: bool = False
    """The mask is turned into booleans that fill the scores (MPT)."""


STYLES = {
    "gpt2": Style(("c_attn",), "c_proj", "c_fc", "c_proj", float32_softmax=False, narrows=True, positions="wpe",
                  residual_dropout="resid_pdrop", attention_dropout="attn_pdrop", embedding_dropout="embd_pdrop",
                  mlp_dropout="resid_pdrop"),
    "gpt_bigcode": Style(("c_attn",), "c_proj", "c_fc", "c_proj", positions="wpe", residual_dropout="resid_pdrop",
                         attention_dropout="attn_pdrop", embedding_dropout="embd_pdrop", mlp_dropout="resid_pdrop"),
    "gpt_neo": Style(float32_scores=True, qkv=("k_proj", "v_proj", "q_proj"), out="out_proj", up="c_fc", down="c_proj",
                     attention_bias=False, positions="wpe", residual_dropout="resid_dropout",
                     attention_dropout="attention_dropout", embedding_dropout="embed_dropout", mlp_dropout="resid_dropout"),
    "gptj": Style(float32_scores=True, qkv=("q_proj", "k_proj", "v_proj"), out="out_proj", up="fc_in", down="fc_out",
                  attention_bias=False, rotary="rotary_dim", parallel=True, two_norms=False, head_bias=True,
                  repeats_tables=True, residual_dropout="resid_pdrop", attention_dropout="attn_pdrop", mlp_dropout="resid_pdrop",
                  embedding_dropout="embd_pdrop"),
    "codegen": Style(("qkv_proj",), "out_proj", "fc_in", "fc_out", attention_bias=False, rotary="rotary_dim", parallel=True,
                     two_norms=False, head_bias=True, float32_scores=True, float_tables=True, repeats_tables=True,
                     residual_dropout="resid_pdrop", attention_dropout="attn_pdrop", mlp_dropout="resid_pdrop",
                     embedding_dropout="embd_pdrop"),
    "gpt_neox": Style(("query_key_value",), "dense", "dense_h_to_4h", "dense_4h_to_h", rotary="rotary_pct", parallel=True,
                      table="embed_in", head="embed_out", residual_dropout="hidden_dropout", mlp_dropout="hidden_dropout",
                      attention_dropout="attention_dropout"),
    "stablelm_alpha": Style(("query_key_value",), "dense", "dense_h_to_4h", "dense_4h_to_h", rotary="rotary_pct", parallel=True,
                            table="embed_in", head="embed_out"),
    "phi": Style(("q_proj", "k_proj", "v_proj"), "dense", "fc1", "fc2", rotary="partial_rotary_factor", parallel=True,
                 two_norms=False, head_bias=True, table="embed_tokens", residual_dropout="resid_pdrop", mlp_dropout="resid_pdrop",
                 embedding_dropout="embd_pdrop", attention_dropout="attention_dropout"),
    "opt": Style(("q_proj", "k_proj", "v_proj"), "out_proj", "fc1", "fc2", positions="embed_positions", position_offset=2,
                 residual_dropout="dropout", mlp_dropout="dropout", attention_dropout="attention_dropout", table="embed_tokens"),
    "bloom": Style(("query_key_value",), "dense", "dense_h_to_4h", "dense_4h_to_h", alibi=True, embedding_norm=True,
                   table="word_embeddings", residual_dropout="hidden_dropout", mlp_dropout="hidden_dropout",
                   attention_dropout="attention_dropout"),
    "falcon": Style(("query_key_value",), "dense", "dense_h_to_4h", "dense_4h_to_h", bias=False, rotary="all", parallel=True,
                    two_norms=False, table="word_embeddings", float32_softmax=False),
    "mpt": Style(("Wqkv",), "out_proj", "up_proj", "down_proj", bias=False, alibi=True, boolean_mask=True),
    "biogpt": Style(("q_proj", "k_proj", "v_proj"), "out_proj", "fc1", "fc2", positions="embed_positions", position_offset=2,
                    table="embed_tokens", scaled_table=True, residual_dropout="hidden_dropout_prob", mlp_dropout="hidden_dropout_prob",
                    embedding_dropout="hidden_dropout_prob", activation_dropout="activation_dropout", float32_softmax=False,
                    attention_dropout="attention_probs_dropout_prob", head="output_projection"),
    "xglm": Style(("q_proj", "k_proj", "v_proj"), "out_proj", "fc1", "fc2", table="embed_tokens", scaled_table=True, sinusoids=True,
                  residual_dropout="dropout", mlp_dropout="dropout", embedding_dropout="dropout", floors=True,
                  activation_dropout="activation_dropout", attention_dropout="attention_dropout", float32_softmax=False),
}  # fmt: skip


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The whole decoder with `layers` blocks."""
    style = STYLES[a.model_type]
    hidden = a.hidden_size or 0
    drop = _dropouts(a)
    b.enter_layer(-1)
    width = int(a.config.get("word_embed_proj_dim") or hidden)
    table = b.embedding(style.table, b.setup.vocabulary, width)
    rows = (a.max_positions or b.machine.sequence) + style.position_offset
    where = b.embedding(style.positions, rows, hidden) if style.positions else None
    fixed = b.buffer((rows + SINUSOIDS) * hidden, b.setup.weight_itemsize) if style.sinusoids else None
    # OPT 350M: narrow embeddings, and norms behind the residual additions with none at the end.
    project_out = b.linear("project_out", hidden, width) if width != hidden else None
    project_in = b.linear("project_in", width, hidden) if width != hidden else None
    after_embedding = _layer_norm(b, "word_embeddings_layernorm", hidden) if style.embedding_norm else None
    tables: list[tuple[Tensor, Tensor]] = []
    head_dim = a.head_dim or hidden // (a.heads or 1)
    share = _rotated(a, style, head_dim)
    always_masked = a.model_type == "falcon" and b.setup.stack.boolean_masks  # `allow_is_causal_skip=False`

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        x = ops.embedding(m, table, width, m.tokens, ops.token_ids(m, m.tokens), style.scaled_table)
        if project_in is not None:
            x = apply(m, project_in, x)
        m.embedded = [x] if b.setup.stack.names_embedding else []
        if where is not None:
            placed = ops.embedding(m, where, hidden, m.sequence, ops.token_ids(m, m.sequence), inputs=False)
            m.embedded += [placed] if m.embedded else []
            x = ops.add(m, x, placed)
            del placed
        if fixed is not None:
            x = ops.add(m, x, m.new(m.sequence * hidden, fixed.itemsize))
        x = ops.dropout(m, x, drop(style.embedding_dropout))
        if after_embedding is not None:
            x = after_embedding(m, x)
        if always_masked and m.mask is None and m.attention == "sdpa":
            m.mask = m.new(m.sequence * m.sequence, BYTE)
        if style.boolean_mask and m.mask is not None:
            m.mask = ops.cast(m, m.mask, BYTE)
        if share:
            tables[:] = [parts.rotary_tables(m, int(head_dim * share), FP32 if style.float_tables else x.itemsize)]
        return x

    blocks = [_block(b, a, style, index, head_dim, share, tables) for index in range(layers)]
    b.enter_layer(-1)
    ends = a.config.get("do_layer_norm_before", True) and not a.config.get("_remove_final_layer_norm")
    final = _layer_norm(b, "ln_f", hidden, bias=a.model_type != "mpt") if ends else None

    def finish(m: Machine, x: Tensor) -> Tensor:
        x = final(m, x) if final is not None else x
        return apply(m, project_out, x) if project_out is not None else x

    language = b.setup.objective in LANGUAGE
    classes = b.setup.vocabulary if language else b.setup.num_labels
    name = style.head if language else "score"
    tied = table if b.setup.tied and language else None
    linear = b.linear(name, width, classes, bias=style.head_bias and language, tied=tied)
    model = Model([Stage(embed, blocks, finish)], lambda m, x: apply(m, linear, x), linear, width, classes)
    model.names_embedding = False  # `embed` does
    model.names_weights = a.model_type in ("gpt_neo", "bloom", "falcon", "mpt")  # `outputs = block(...)`
    return model


def _head_by_head(m: Machine, q: Tensor, k: Tensor, v: Tensor, heads: int, kv_heads: int, grouped: bool) -> tuple[Tensor, ...]:
    """Falcon's `_split_heads` and the reshaping after it: copies in head order; grouped keys and values are spread over all heads."""
    if not grouped:
        return ops.copy(m, q), ops.pick(m, k), ops.pick(m, v)
    q = ops.copy(m, q)
    k, v = (ops.copy(m, ops.spread(m, ops.pick(m, x), q.numel)) for x in (k, v))
    return ops.copy(m, q), k, v


def _dropouts(a: Architecture) -> Callable[[str], float]:
    return lambda key: float(a.dropouts.get(key, a.config.get(key) or 0.0)) if key else 0.0


def _rotated(a: Architecture, style: Style, head_dim: int) -> float:
    """The share of each head that is rotated; 0 for none."""
    if not style.rotary:
        return 0.0
    if style.rotary == "all":
        return 0.0 if a.config.get("alibi") else 1.0
    value = a.config.get(style.rotary) if style.rotary != "partial_rotary_factor" else None
    value = rotated_share(a) if value is None else value
    return float(value) / head_dim if float(value) > 1 else float(value)


def _layer_norm(b: Builder, name: str, width: int, bias: bool = True) -> Callable[[Machine, Tensor], Tensor]:
    weight = b.norm(name, width)
    shift = b.vector(f"{name}.bias", width) if bias else None
    return lambda m, x: parts.layer_norm(m, x, weight, shift, width)


def _block(
    b: Builder,
    a: Architecture,
    style: Style,
    index: int,
    head_dim: int,
    share: float,
    tables: list[tuple[Tensor, Tensor]],
) -> Block:
    b.enter_layer(index)
    hidden, heads = a.hidden_size or 0, a.heads or 1
    kv_heads = a.kv_heads or heads
    drop = _dropouts(a)
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    bias = style.bias or bool(a.config.get("bias"))
    attention_bias = bias if style.attention_bias is None else style.attention_bias
    parallel = style.parallel and a.config.get("use_parallel_residual", a.config.get("parallel_attn", True))
    norm_bias = a.model_type != "mpt"
    doubled = bool(a.config.get("new_decoder_architecture")) and a.config.get("num_ln_in_parallel_attn") in (None, 2)
    two_norms = style.two_norms or doubled or not parallel
    first = _layer_norm(b, "ln_1", hidden, norm_bias)
    widths = (q_width + 2 * kv_width,) if len(style.qkv) == 1 else (q_width, kv_width, kv_width)
    b.parent = "attn"
    projections = [b.linear(n, hidden, w, attention_bias) for n, w in zip(style.qkv, widths, strict=True)]
    out = b.linear(
        style.out,
        q_width,
        hidden,
        bias if style.attention_bias is None or a.model_type == "gpt_neo" else attention_bias,
    )
    second = _layer_norm(b, "ln_2", hidden, norm_bias) if two_norms else None
    b.parent = "mlp"
    inner = a.intermediate_size or 4 * hidden
    up, down = b.linear(style.up, hidden, inner, bias), b.linear(style.down, inner, hidden, bias)
    act = a.activation or "gelu"
    falcon = a.model_type == "falcon"
    for linear in (*projections, out, up, down):
        linear.viewed = falcon  # `FalconLinear`
    if a.config.get("new_decoder_architecture"):
        kv_heads = heads

    def attention(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        if len(projections) == 1:
            joined = apply(m, projections[0], x)  # keeps its name
            q, k, v = ops.split(m, joined, (rows * q_width, rows * kv_width, rows * kv_width))
        else:
            q, k, v = apply(m, projections[0], x), apply(m, projections[1], x), apply(m, projections[2], x)
        if falcon:
            q, k, v = _head_by_head(m, q, k, v, heads, kv_heads, bool(a.config.get("new_decoder_architecture")))
        if share:
            own = [parts.repeated_tables(m, tables[-1]) for _ in range(2)] if style.repeats_tables else tables[-1:]
            q, k = parts.rope(m, q, k, own[0], share, style.float_tables, own[-1])
            del own
        shape = Shape(
            m.batch,
            m.sequence,
            m.sequence,
            heads,
            kv_heads,
            head_dim,
            head_dim,
            drop(style.attention_dropout),
            float32_softmax=style.float32_softmax,
            narrows=style.narrows,
            float32_scores=style.float32_scores,
            floors=style.floors,
            returns_plain=a.model_type == "xglm",
            head_major=falcon or a.model_type in ("gpt_neox", "phi"),
            names_scores=falcon,
            broadcasts_kv=falcon and kv_heads < heads,
        )
        position_bias = None
        if style.alibi or a.config.get("alibi"):
            position_bias = m.mask or m.new(m.batch * heads * m.sequence, x.itemsize)
        mixed = attend(m, q, k, v, shape, position_bias)
        return ops.dropout(m, apply(m, out, mixed), drop(style.residual_dropout))

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        return ops.dropout(m, parts.mlp(m, x, up, down, act, drop(style.activation_dropout)), drop(style.mlp_dropout))

    def sequential(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        x = ops.add(m, attention(m, first(m, x)), residual)
        residual = x
        assert second is not None
        return ops.add(m, residual, feed_forward(m, second(m, x)))

    def side_by_side(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        if second is not None:
            mixed = attention(m, first(m, x))
            fed = feed_forward(m, second(m, x))
        else:
            normalised = first(m, x)
            mixed = attention(m, normalised)
            fed = feed_forward(m, normalised)
            del normalised
        return ops.add(m, ops.add(m, fed, mixed), x)

    return side_by_side if parallel else sequential
