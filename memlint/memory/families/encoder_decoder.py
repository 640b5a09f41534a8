"""Encoder-decoders of the BART line: BART, mBART, Pegasus, M2M-100, Marian, Blenderbot and Whisper.

Read in transformers 5.24 `models/<type>/modeling_<type>.py`; they differ in where the norms stand, in positions and in the head.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import convolutions, ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import Linear, apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, INT64, Parameter, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture
from memlint.typed import NamedTuple


class Style(NamedTuple):
    """How a family deviates from BART."""

    pre_norm: bool = False
    positions: str = "learned"
    """learned (two rows more than positions), exact (Whisper), whole (all of a float32 table, trained), frozen (a table that is not
    trained), buffer."""
    embedding_norm: bool = True
    final_norm: bool = False
    logits_bias: bool = True
    scaled_table: bool = True
    """The embedding module itself scales."""
    key_bias: bool = True
    speech: bool = False


STYLES = {
    "bart": Style(),
    "mbart": Style(pre_norm=True, final_norm=True),
    "pegasus": Style(pre_norm=True, positions="frozen", embedding_norm=False, final_norm=True, scaled_table=False),
    "m2m_100": Style(pre_norm=True, positions="buffer", embedding_norm=False, final_norm=True, logits_bias=False),
    "marian": Style(positions="frozen", embedding_norm=False, scaled_table=False),
    "voxtral_encoder": Style(pre_norm=True, positions="whole", final_norm=True, key_bias=False, speech=True),
    "whisper": Style(pre_norm=True, positions="exact", embedding_norm=False, final_norm=True, logits_bias=False, scaled_table=False,
                     key_bias=False, speech=True),
}  # fmt: skip


def two_stacks(b: Builder, layers: int) -> None:
    """Encoder and decoder differ, so all of their layers are simulated: raises `NotUniform` when only some are asked for."""
    if layers < b.setup.layers:
        raise NotUniform


def target_length(b: Builder) -> int:
    """Tokens on the decoder's side."""
    return b.setup.media.target_length or b.machine.sequence


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Encoder, decoder and language head."""
    two_stacks(b, layers)
    style = STYLES[a.model_type]
    config, hidden = a.config, int(a.config.get("d_model") or 1024)
    b.enter_layer(-1)
    table = None if style.speech else b.embedding("shared", b.setup.vocabulary, hidden)
    encoder, decoder = int(config.get("encoder_layers") or layers), int(config.get("decoder_layers") or layers)
    first = speech_encoder(b, a, style, hidden, encoder) if table is None else _stack(b, a, style, table, encoder, 0, False)
    if table is None:
        table = b.embedding("embed_tokens", b.setup.vocabulary, hidden)
    second = _stack(b, a, style, table, decoder, encoder, True)
    name = "proj_out" if style.speech else "lm_head"
    head = b.linear(name, hidden, b.setup.vocabulary, tied=table if b.setup.tied or style.speech else None)
    bias = b.buffer(b.setup.vocabulary, b.setup.weight_itemsize) if style.logits_bias else None

    def logits(m: Machine, x: Tensor) -> Tensor:
        out = apply(m, head, x)
        return ops.add(m, out, bias) if bias is not None else out

    return Model([first, second], logits, head, hidden, b.setup.vocabulary, causal=False, upcasts=False, names_embedding=False)


def _norm(b: Builder, name: str, width: int) -> Callable[[Machine, Tensor], Tensor]:
    weight, bias = b.norm(name, width), b.vector(f"{name}.bias", width)
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


def _positions(b: Builder, style: Style, rows: int, hidden: int) -> Parameter | None:
    """The table of positions; M2M-100 computes it into a buffer."""
    if style.positions == "buffer":
        b.extra.append(b.buffer((rows + 2) * hidden, b.setup.weight_itemsize).storage)
        return None
    frozen, b.frozen = b.frozen, style.positions == "frozen" or b.frozen
    table = b.embedding("embed_positions", rows + (2 if style.positions == "learned" else 0), hidden)
    b.frozen = frozen
    return table


def _stack(b: Builder, a: Architecture, style: Style, table: Parameter, layers: int, first: int, decodes: bool) -> Stage:
    """One side of a text model."""
    config = a.config
    hidden = int(config.get("d_model") or 1024)
    source = b.machine.sequence if not style.speech else int(config.get("max_source_positions") or 1500)
    length = target_length(b) if decodes else source
    rows = int(config.get("max_target_positions" if style.speech else "max_position_embeddings") or 1024)
    places = _positions(b, style, rows, hidden)
    dropout = float(config.get("dropout") or 0.0)
    scales = bool(config.get("scale_embedding"))
    blocks = []
    for index in range(layers):
        b.enter_layer(first + index)
        blocks.append(_block(b, a, style, decodes, source))
    b.enter_layer(-1)
    after = _norm(b, "layernorm_embedding", hidden) if style.embedding_norm else None
    final = _norm(b, "layer_norm", hidden) if style.final_norm else None

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.sequence = length
        padding, m.shared = m.mask, []
        if decodes:
            m.mask = None
            if padding is not None and context is not None:  # a bias has the dtype of the encoder's states
                itemsize = BYTE if padding.itemsize == BYTE else context.itemsize
                m.shared.append(m.new(m.batch * length * source, itemsize))
            if m.attention == "eager":
                m.mask = m.new(m.batch * length * length, table.itemsize)
        x = ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens), style.scaled_table)
        if scales and not style.scaled_table:
            x = ops.scale(m, x)
        if places is not None:
            rows = m.tokens if style.speech else length
            placed = ops.embedding(m, places, hidden, rows, ops.token_ids(m, rows), inputs=False)
        else:
            placed = m.new(m.tokens * hidden, x.itemsize)
        m.embedded = [x, placed] if b.setup.stack.names_embedding else []
        x = ops.add(m, x, placed)
        del placed
        if after is not None:
            x = after(m, x)
        return ops.dropout(m, x, dropout)

    return Stage(embed, blocks, lambda m, x: _finished(m, final, x))


def _finished(m: Machine, final: Callable[[Machine, Tensor], Tensor] | None, x: Tensor) -> Tensor:
    m.shared = []
    return final(m, x) if final is not None else x


def speech_encoder(b: Builder, a: Architecture, style: Style, hidden: int, layers: int, with_layers: bool = True) -> Stage:
    """Whisper's encoder: two convolutions over the spectrogram, the second of stride 2, and positions that are not trained."""
    bins, length = int(a.config.get("num_mel_bins") or 80), int(a.config.get("max_source_positions") or 1500)
    dropout = float(a.config.get("dropout") or 0.0)
    convs = []
    for name, channels in (("conv1", bins), ("conv2", hidden)):
        convs.append((b.parameter(name, "conv", (hidden, channels * 3)), b.vector(f"{name}.bias", hidden)))
    whole = style.positions == "whole"
    if whole:
        trained = not b.frozen and b.setup.trains("embed_positions", "embedding")
        places = b.make("embed_positions", "embedding", (length, hidden), FP32, trained, "weights")
    else:
        frozen, b.frozen = b.frozen, True
        places = b.embedding("embed_positions", length, hidden)
        b.frozen = frozen
    blocks = []
    for index in range(layers):
        if with_layers:
            b.enter_layer(index)
        blocks.append(_block(b, a, style, False, length))
    b.enter_layer(-1)
    final = _norm(b, "layer_norm", hidden)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.sequence, m.mask, m.shared = length, None, []
        features[:] = [m.new(m.batch * bins * 2 * length, table_itemsize)]
        x = convolutions.convolution(m, features[0], *convs[0], m.batch * hidden * 2 * length)
        if m.input_grads and x.node is None:
            x = m.tape.leaf(x)  # the encoder's `get_input_embeddings` is the first convolution
        x = ops.unary(m, x)
        x = ops.unary(m, convolutions.convolution(m, x, *convs[1], m.batch * hidden * length))
        if whole:
            x = ops.cast(m, ops.add(m, x, places), x.itemsize)
        else:
            m.embedded = [x] if b.setup.stack.names_embedding else []
            x = ops.add(m, x, ops.embedding(m, places, hidden, length, m.new(length, INT64), inputs=False))
        return ops.dropout(m, x, dropout)

    features: list[Tensor] = []
    """The spectrograms, which the batch holds as long as the step lasts."""
    table_itemsize = b.setup.weight_itemsize
    return Stage(embed, blocks, final)


def _block(b: Builder, a: Architecture, style: Style, decodes: bool, source: int) -> Block:
    config = a.config
    side = "decoder" if decodes else "encoder"
    hidden = int(config.get("d_model") or 1024)
    heads = int(config.get(f"{side}_attention_heads") or 16)
    inner = int(config.get(f"{side}_ffn_dim") or 4096)
    dropout, inner_dropout = float(config.get("dropout") or 0.0), float(config.get("activation_dropout") or 0.0)
    act = a.activation or "gelu"
    head_dim = hidden // heads

    def attention(prefix: str) -> Callable[[Machine, Tensor, Tensor | None], Tensor]:
        b.parent = prefix
        k, v = b.linear("k_proj", hidden, hidden, style.key_bias), b.linear("v_proj", hidden, hidden, True)
        q, out = b.linear("q_proj", hidden, hidden, True), b.linear("out_proj", hidden, hidden, True)
        norm = _norm(b, f"{prefix}_layer_norm", hidden)
        drop = float(config.get("attention_dropout") or 0.0)

        def mixed(m: Machine, x: Tensor, other: Tensor | None) -> Tensor:
            keys = source if other is not None else m.sequence
            shape = Shape(
                m.batch,
                m.sequence,
                keys,
                heads,
                heads,
                head_dim,
                head_dim,
                drop,
                causal=decodes and other is None,
                float32_softmax=False,
                head_major=style.speech,
                kv_head_major=style.speech,
            )
            states = other if other is not None else x
            kept = m.mask
            if other is not None:
                m.mask = m.shared[0] if m.shared else None
            query, key, value = (_heads(m, style, apply(m, p, y), p is q) for p, y in ((q, x), (k, states), (v, states)))
            result = attend(m, query, key, value, shape)
            del query, key, value
            m.mask = kept
            result = apply(m, out, result)
            del m.weights[:-1]  # one name for those of either attention
            return ops.dropout(m, result, dropout)

        def run(m: Machine, x: Tensor, other: Tensor | None) -> Tensor:
            if style.pre_norm:
                return ops.add(m, x, mixed(m, norm(m, x), other))
            return norm(m, ops.add(m, x, mixed(m, x, other)))

        return run

    itself = attention("self_attn")
    cross = attention("encoder_attn") if decodes else None
    b.parent = "mlp"
    fc1, fc2 = b.linear("fc1", hidden, inner, True), b.linear("fc2", inner, hidden, True)
    norm = _norm(b, "final_layer_norm", hidden)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        x = itself(m, x, None)
        if cross is not None:
            assert context is not None
            x = cross(m, x, context)
        if style.pre_norm:
            return ops.add(m, x, _feed_forward(m, norm(m, x), fc1, fc2, act, inner_dropout, dropout))
        return norm(m, ops.add(m, x, _feed_forward(m, x, fc1, fc2, act, inner_dropout, dropout)))

    return block


def _heads(m: Machine, style: Style, x: Tensor, scaled: bool) -> Tensor:
    """Whisper scales queries itself and lays all three out head by head (`.transpose(1, 2).contiguous()`)."""
    if not style.speech:
        return x
    return ops.copy(m, ops.scale(m, x) if scaled else x)


def _feed_forward(m: Machine, x: Tensor, fc1: Linear, fc2: Linear, act: str, inner_dropout: float, dropout: float) -> Tensor:
    x = parts.activation(m, apply(m, fc1, x), act)
    x = ops.dropout(m, x, inner_dropout)
    return ops.dropout(m, apply(m, fc2, x), dropout)
