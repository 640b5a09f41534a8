"""Stable Diffusion 3 and FLUX.1: transformer blocks of two streams that attend together; in FLUX.1 then blocks of one.

Read in diffusers 0.42 `models/transformers/transformer_flux.py`, `transformer_sd3.py`, `models/attention.py` (`JointTransformerBlock`),
`attention_processor.py` (`JointAttnProcessor2_0`), `normalization.py` and `embeddings.py`. The text's rows are the second stream. Latents
and text conditions are computed beforehand.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.convolutions import convolution
from memlint.memory.families.dit import attended, bare_norm, feed_forward, pieces, rms, scaled, squared_error, turn
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import Linear, apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Anchor, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture

Tables = list[tuple[Tensor, Tensor]]


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The transformer and its regression loss."""
    if layers < b.setup.layers:
        raise NotUniform
    return _sd3(b, a, layers) if a.model_type == "sd3_transformer" else _flux(b, a, layers)


PIXELS = 16
"""Pixels of a side that the autoencoder and the patches make one row of."""


def _rows(b: Builder, side: int, text: int) -> tuple[int, int]:
    """Text rows and latent rows of the batch; `side` latent rows each way and `text` where nothing states them."""
    media = b.setup.media
    across = media.image_size // PIXELS or side
    return b.machine.batch * (media.text_tokens or text), b.machine.batch * (media.latent_tokens or across * across)


def _flux(b: Builder, a: Architecture, layers: int) -> Model:
    config = a.config
    heads, head_dim = int(config.get("num_attention_heads") or 24), int(config.get("attention_head_dim") or 128)
    hidden, channels = heads * head_dim, int(config.get("in_channels") or 64)
    text_rows, latent_rows = _rows(b, 64, 512)
    tables: Tables = []
    b.enter_layer(-1)
    widths = [256, *([256] if config.get("guidance_embeds") else []), int(config.get("pooled_projection_dim") or 768)]
    embedders = [
        (b.linear("linear_1", width, hidden, bias=True), b.linear("linear_2", hidden, hidden, bias=True)) for width in widths
    ]
    context_embedder = b.linear("context_embedder", int(config.get("joint_attention_dim") or 4096), hidden, bias=True)
    x_embedder = b.linear("x_embedder", channels, hidden, bias=True)
    blocks: list[Block] = []
    for index in range(layers):
        b.enter_layer(index)
        blocks.append(_double(b, hidden, heads, (text_rows * hidden, latent_rows * hidden), tables))
    singles = config.get("num_single_layers")
    for index in range(38 if singles is None else int(singles)):
        b.enter_layer(layers + index)
        blocks.append(_single(b, hidden, heads, (text_rows * hidden, latent_rows * hidden), tables))
    b.enter_layer(-1)
    norm_out = b.linear("norm_out.linear", hidden, 2 * hidden, bias=True)
    proj_out = b.linear("proj_out", hidden, int(config.get("out_channels") or channels), bias=True)
    given: list[Tensor] = []
    """Latents and text states, which the batch holds as long as the step lasts."""

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.sequence, m.mask = (text_rows + latent_rows) // m.batch, None
        itemsize = x_embedder.weight.itemsize
        given[:] = [m.new(latent_rows * channels, itemsize), m.new(text_rows * context_embedder.fin, itemsize)]
        latents = apply(m, x_embedder, given[0])
        emb: Tensor | None = None
        for width, (first, second) in zip(widths, embedders, strict=True):
            one = apply(m, second, ops.unary(m, apply(m, first, m.new(m.batch * width, itemsize))))
            emb = one if emb is None else ops.add(m, emb, one)
            del one
        assert emb is not None
        m.shared = [emb]
        tables[:] = [(m.new(m.sequence * head_dim, FP32), m.new(m.sequence * head_dim, FP32))]
        m.beside = apply(m, context_embedder, given[1])
        return m.tape.leaf(latents, Anchor) if m.input_grads and latents.node is None else latents

    def finish(m: Machine, x: Tensor) -> Tensor:
        scale, shift = pieces(m, apply(m, norm_out, ops.unary(m, m.shared[0])), 2)
        x = scaled(m, bare_norm(m, x, hidden), shift, scale)
        x = apply(m, proj_out, x)
        m.shared, m.beside = [], None
        return x

    return Model([Stage(embed, blocks, finish)], None, None, hidden, 0, causal=False, loss=squared_error, names_embedding=False)


Normed = tuple[Tensor, "Tensor | None", tuple[Tensor, ...]]
Zero = Callable[[Machine, Tensor], Normed]


def _zero_norm(b: Builder, hidden: int, count: int) -> Zero:
    """`AdaLayerNormZero`: the modulated norm, and all `count` vectors made from the conditioning (shift and scale come first). With nine it
    is modulated a second time for a second attention (`SD35AdaLayerNormZeroX`); with two they are scale and shift."""
    linear = b.linear("linear", hidden, count * hidden, bias=True)

    def norm(m: Machine, x: Tensor) -> Normed:
        mods = pieces(m, apply(m, linear, ops.unary(m, m.shared[0])), count)
        if count < 9:
            return scaled(m, bare_norm(m, x, hidden), mods[0], mods[1]), None, mods
        normed = bare_norm(m, x, hidden)
        x = scaled(m, normed, mods[0], mods[1])
        return x, scaled(m, normed, mods[6], mods[7]), mods

    return norm


Attention = Callable[[Machine, Tensor, Tensor], tuple[Tensor, Tensor]]


def _streams(
    hidden: int,
    norms: tuple[Zero, Zero],
    attention: Attention,
    feeds: list[tuple[Linear, Linear]],
    again: Callable[[Machine, Tensor], Tensor] | None = None,
) -> Block:
    """A block of two streams: both attend together, `again` only the latents, then each is fed forward. Without a second feed-forward part
    the text ends here."""

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        text = m.beside
        assert text is not None
        normed, other, mods = norms[0](m, x)
        words, _, text_mods = norms[1](m, text)
        mixed, text_mixed = attention(m, normed, words)
        mixed = ops.mul(m, mods[2], mixed)
        x = ops.add(m, x, mixed)
        if again is not None and other is not None:
            repeated = again(m, other)
            repeated = ops.mul(m, mods[8], repeated)
            x = ops.add(m, x, repeated)
        normed = bare_norm(m, x, hidden)
        normed = scaled(m, normed, mods[3], mods[4])
        fed = feed_forward(m, feeds[0], normed)
        fed = ops.mul(m, mods[5], fed)
        x = ops.add(m, x, fed)
        if len(feeds) == 1:
            m.beside = None
            return x
        text_mixed = ops.mul(m, text_mods[2], text_mixed)
        text = ops.add(m, text, text_mixed)
        words = bare_norm(m, text, hidden)
        words = scaled(m, words, text_mods[3], text_mods[4])
        text_fed = feed_forward(m, feeds[1], words)
        m.beside = ops.add(m, text, ops.mul(m, text_mods[5], text_fed))
        return x

    return block


def _feeds(b: Builder, hidden: int, count: int) -> list[tuple[Linear, Linear]]:
    """The feed-forward parts of the streams."""
    b.parent = "net"
    return [(b.linear("proj", hidden, 4 * hidden, bias=True), b.linear("2", 4 * hidden, hidden, bias=True)) for _ in range(count)]


def _double(b: Builder, hidden: int, heads: int, sizes: tuple[int, int], tables: Tables) -> Block:
    """`FluxTransformerBlock`."""
    head_dim = hidden // heads
    norms = _zero_norm(b, hidden, 6), _zero_norm(b, hidden, 6)
    b.parent = "attn"
    own = [b.linear(name, hidden, hidden, bias=True) for name in ("to_q", "to_k", "to_v")]
    added = [b.linear(name, hidden, hidden, bias=True) for name in ("add_q_proj", "add_k_proj", "add_v_proj")]
    scales = [rms(b, head_dim) for _ in range(4)]
    added_out = b.linear("to_add_out", hidden, hidden, bias=True)
    b.parent = "to_out"
    out = b.linear("0", hidden, hidden, bias=True)

    def attention(m: Machine, x: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (apply(m, projection, x) for projection in own)
        tq, tk, tv = (apply(m, projection, text) for projection in added)
        q = scales[0](m, q)
        k = scales[1](m, k)
        tq = scales[2](m, tq)
        tk = scales[3](m, tk)
        q = ops.concat(m, (tq, q))
        k = ops.concat(m, (tk, k))
        v = ops.concat(m, (tv, v))
        q = turn(m, q, tables[-1])
        k = turn(m, k, tables[-1])
        x = ops.cast(m, attended(m, q, k, v, heads, hidden), q.itemsize)
        text, x = ops.split(m, x, sizes)
        x = apply(m, out, ops.copy(m, x))
        text = apply(m, added_out, ops.copy(m, text))
        return x, text

    return _streams(hidden, norms, attention, _feeds(b, hidden, 2))


def _sd3(b: Builder, a: Architecture, layers: int) -> Model:
    config = a.config
    heads, head_dim = int(config.get("num_attention_heads") or 18), int(config.get("attention_head_dim") or 64)
    hidden, channels = heads * head_dim, int(config.get("in_channels") or 16)
    patch, side = int(config.get("patch_size") or 2), int(config.get("sample_size") or 128)
    text_rows, latent_rows = _rows(b, side // patch, 333)
    sizes = (text_rows * hidden, latent_rows * hidden)
    b.enter_layer(-1)
    weight, bias = b.parameter("proj", "conv", (hidden, channels * patch * patch)), b.vector("proj.bias", hidden)
    most = int(config.get("pos_embed_max_size") or side // patch)
    b.extra.append(b.buffer(most * most * hidden, b.setup.weight_itemsize).storage)
    widths = [256, int(config.get("pooled_projection_dim") or 2048)]
    embedders = [
        (b.linear("linear_1", width, hidden, bias=True), b.linear("linear_2", hidden, hidden, bias=True)) for width in widths
    ]
    context_embedder = b.linear("context_embedder", int(config.get("joint_attention_dim") or 4096), hidden, bias=True)
    twice = config.get("dual_attention_layers") or ()
    blocks: list[Block] = []
    for index in range(layers):
        b.enter_layer(index)
        blocks.append(_joint(b, hidden, heads, sizes, bool(config.get("qk_norm")), index in twice, last=index == layers - 1))
    b.enter_layer(-1)
    norm_out = b.linear("norm_out.linear", hidden, 2 * hidden, bias=True)
    proj_out = b.linear("proj_out", hidden, patch * patch * int(config.get("out_channels") or channels), bias=True)
    given: list[Tensor] = []

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.sequence, m.mask = (text_rows + latent_rows) // m.batch, None
        itemsize = weight.itemsize
        given[:] = [m.new(latent_rows * channels * patch * patch, itemsize), m.new(text_rows * context_embedder.fin, itemsize)]
        latents = convolution(m, given[0], weight, bias, latent_rows * hidden)
        places = m.new(latent_rows // m.batch * hidden, itemsize)
        latents = ops.copy(m, ops.cast(m, ops.add(m, latents, places), latents.itemsize))
        del places
        steps, pooled = (m.new(m.batch * width, itemsize) for width in widths)
        time = apply(m, embedders[0][1], ops.unary(m, apply(m, embedders[0][0], steps)))
        words = apply(m, embedders[1][1], ops.unary(m, apply(m, embedders[1][0], pooled)))
        m.shared = [ops.add(m, time, words)]
        del steps, pooled, time, words
        m.beside = apply(m, context_embedder, given[1])
        return m.tape.leaf(latents, Anchor) if m.input_grads and latents.node is None else latents

    def finish(m: Machine, x: Tensor) -> Tensor:
        scale, shift = pieces(m, apply(m, norm_out, ops.unary(m, m.shared[0])), 2)
        x = scaled(m, bare_norm(m, x, hidden), shift, scale)
        x = apply(m, proj_out, x)
        m.shared, m.beside = [], None
        return ops.copy(m, x)  # patches become an image

    return Model([Stage(embed, blocks, finish)], None, None, hidden, 0, causal=False, loss=squared_error, names_embedding=False)


def _own_rms(b: Builder, width: int) -> Callable[[Machine, Tensor], Tensor]:
    """diffusers' `RMSNorm` (`normalization.py`): statistics in float32, the result in the dtype of the weight."""
    weight = b.norm("norm", width)

    def norm(m: Machine, x: Tensor) -> Tensor:
        scaled = ops.mul(m, x, ops.rms_statistics(m, ops.cast(m, x, FP32), width))
        if weight.itemsize < FP32:
            scaled = ops.cast(m, scaled, weight.itemsize)
        return ops.mul(m, scaled, weight)

    return norm


def _joint(b: Builder, hidden: int, heads: int, sizes: tuple[int, int], normed: bool, twice: bool, last: bool) -> Block:
    """`JointTransformerBlock`; the `last` one leaves the text as it is, and some attend once more to the latents alone (`twice`)."""
    head_dim = hidden // heads
    norms = _zero_norm(b, hidden, 9 if twice else 6), _zero_norm(b, hidden, 2 if last else 6)

    def projections(*names: str) -> list[Linear]:
        b.parent = "attn"
        return [b.linear(name, hidden, hidden, bias=True) for name in names]

    def scales(count: int) -> list[Callable[[Machine, Tensor], Tensor]]:
        return [_own_rms(b, head_dim) for _ in range(count)] if normed else [lambda m, x: x] * count

    own, added = projections("to_q", "to_k", "to_v"), projections("add_q_proj", "add_k_proj", "add_v_proj")
    joint_scales = scales(4)
    added_out = None if last else projections("to_add_out")[0]
    b.parent = "to_out"
    out = b.linear("0", hidden, hidden, bias=True)
    second = projections("to_q", "to_k", "to_v") if twice else []
    second_scales = scales(2) if twice else []
    b.parent = "to_out"
    second_out = b.linear("0", hidden, hidden, bias=True) if twice else None

    def mixed_by(m: Machine, q: Tensor, k: Tensor, v: Tensor, joined: bool) -> Tensor:
        rows = q.numel // hidden // m.batch
        shape = Shape(
            m.batch, rows, rows, heads, heads, head_dim, head_dim, causal=False, head_major=joined, kv_head_major=joined
        )
        return ops.cast(m, attend(m, q, k, v, shape), q.itemsize)

    def dense(m: Machine, x: Tensor) -> Tensor:
        """A part of the rows of each sample, as a matrix: a copy, unless autocast makes one."""
        return x if m.batch == 1 or (m.autocast and x.itemsize == FP32) else ops.copy(m, x)

    def attention(m: Machine, x: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (apply(m, projection, x) for projection in own)
        q = joint_scales[0](m, q)
        k = joint_scales[1](m, k)
        tq, tk, tv = (apply(m, projection, text) for projection in added)
        tq = joint_scales[2](m, tq)
        tk = joint_scales[3](m, tk)
        q = ops.concat(m, (q, tq))
        k = ops.concat(m, (k, tk))
        v = ops.concat(m, (v, tv))
        x = mixed_by(m, q, k, v, joined=True)
        x, text = ops.narrow(m, x, sizes[1]), ops.narrow(m, x, sizes[0])
        if added_out is not None:
            text = apply(m, added_out, dense(m, text))
        return apply(m, out, dense(m, x)), text

    def again(m: Machine, x: Tensor) -> Tensor:
        assert second_out is not None
        q, k, v = (apply(m, projection, x) for projection in second)
        q = second_scales[0](m, q)
        k = second_scales[1](m, k)
        return apply(m, second_out, mixed_by(m, q, k, v, joined=False))

    return _streams(hidden, norms, attention, _feeds(b, hidden, 1 if last else 2), again if twice else None)


def _single(b: Builder, hidden: int, heads: int, sizes: tuple[int, int], tables: Tables) -> Block:
    """`FluxSingleTransformerBlock`: attention and feed-forward side by side, over both streams in one tensor."""
    norm = _zero_norm(b, hidden, 3)
    b.parent = ""
    up = b.linear("proj_mlp", hidden, 4 * hidden, bias=True)
    out = b.linear("proj_out", 5 * hidden, hidden, bias=True)
    b.parent = "attn"
    own = [b.linear(name, hidden, hidden, bias=True) for name in ("to_q", "to_k", "to_v")]
    scales = [rms(b, hidden // heads) for _ in range(2)]

    def attention(m: Machine, x: Tensor) -> Tensor:
        q, k, v = (apply(m, projection, x) for projection in own)
        q = scales[0](m, q)
        k = scales[1](m, k)
        q = turn(m, q, tables[-1])
        k = turn(m, k, tables[-1])
        return ops.cast(m, attended(m, q, k, v, heads, hidden), q.itemsize)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        assert m.beside is not None
        x = residual = ops.concat(m, (m.beside, x))
        normed, _, mods = norm(m, x)
        fed = ops.unary(m, apply(m, up, normed))
        mixed = attention(m, normed)
        x = ops.concat(m, (mixed, fed))
        x = ops.mul(m, mods[2], apply(m, out, x))
        x = ops.add(m, residual, x)
        m.beside, x = ops.narrow(m, x, sizes[0]), ops.narrow(m, x, sizes[1])
        return x

    return block
