"""Diffusion transformers: FLUX.2 (two streams, then one) and CogVideoX (two streams that share their weights).

Read in diffusers 0.38 `models/transformers/transformer_flux2.py`, `models/transformers/cogvideox_transformer_3d.py`,
`models/normalization.py` and `models/embeddings.py` (`apply_rotary_emb`). The text's rows are the second stream. Latents and text
conditions are computed beforehand.
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
from memlint.memory.tensor import FP32, Anchor, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture

Streams = tuple[Tensor, Tensor]


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The transformer and its regression loss."""
    if layers < b.setup.layers:
        raise NotUniform
    return _flux2(b, a, layers) if a.model_type == "flux2_transformer" else _cogvideox(b, a, layers)


def _rows(b: Builder) -> tuple[int, int]:
    """Text rows and latent rows of the batch."""
    media = b.setup.media
    text = media.text_tokens
    return b.machine.batch * text, b.machine.batch * (media.latent_tokens or max(b.machine.sequence - text, 1))


def modulated(m: Machine, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """`(1 + scale) * x + shift` with one vector per sample."""
    return ops.add(m, ops.mul(m, ops.shift(m, scale), x), shift)


def scaled(m: Machine, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """`x * (1 + scale) + shift`."""
    return ops.add(m, ops.mul(m, x, ops.shift(m, scale)), shift)


def gated(m: Machine, x: Tensor, gate: Tensor, update: Tensor) -> Tensor:
    """`x + gate * update`."""
    return ops.add(m, x, ops.mul(m, gate, update))


def pieces(m: Machine, x: Tensor, count: int) -> tuple[Tensor, ...]:
    """Shift, scale and gate vectors of a modulation."""
    return ops.split(m, x, (x.numel // count,) * count)


def turn(m: Machine, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """`apply_rotary_emb`: pairs are turned, products in float32, the sum cast back."""
    real, imaginary = ops.split(m, x, (x.numel // 2, x.numel // 2))
    turned = ops.concat(m, (ops.scale(m, imaginary), real))
    left = ops.mul(m, ops.cast(m, x, FP32), tables[0])
    return ops.cast(m, ops.add(m, left, ops.mul(m, ops.cast(m, turned, FP32), tables[1])), x.itemsize)


def feed_forward(m: Machine, pair: tuple[Linear, Linear], x: Tensor) -> Tensor:
    """`FeedForward`: an activation between two projections."""
    x = _activated(m, pair[0], x)
    return apply(m, pair[1], x)


def _activated(m: Machine, up: Linear, x: Tensor) -> Tensor:
    x = apply(m, up, x)
    return ops.unary(m, x)


def squared_error(m: Machine, prediction: Tensor) -> Tensor:
    """`F.mse_loss(prediction.float(), target.float())`."""
    wide = ops.cast(m, prediction, FP32)
    target = m.new(prediction.numel, FP32)
    out = m.new(1, FP32)
    numel = wide.numel
    return m.tape.record(out, (wide,), lambda g: (m.new(numel, FP32),), (wide.storage, target.storage))


def bare_norm(m: Machine, x: Tensor, width: int) -> Tensor:
    return parts.layer_norm(m, x, None, None, width)


def _flux2(b: Builder, a: Architecture, layers: int) -> Model:
    config = a.config
    heads, head_dim = int(config.get("num_attention_heads") or 24), int(config.get("attention_head_dim") or 128)
    hidden, inner = heads * head_dim, int(heads * head_dim * float(config.get("mlp_ratio") or 3.0))
    channels = int(config.get("in_channels") or 128)
    singles = int(config.get("num_single_layers") or 0)
    text_rows, latent_rows = _rows(b)
    tables: list[tuple[Tensor, Tensor]] = []
    b.enter_layer(-1)
    embedders = [
        b.linear("linear_1", int(config.get("timestep_guidance_channels") or 256), hidden),
        b.linear("linear_2", hidden, hidden),
    ]
    if config.get("guidance_embeds", True):
        b.linear("linear_1", 256, hidden)
        b.linear("linear_2", hidden, hidden)
    modulations = [b.linear("linear", hidden, width * hidden) for width in (6, 6, 3)]
    x_embedder = b.linear("x_embedder", channels, hidden)
    context_embedder = b.linear("context_embedder", int(config.get("joint_attention_dim") or 15360), hidden)
    blocks: list[Block] = []
    for index in range(layers):
        b.enter_layer(index)
        blocks.append(_flux2_double(b, hidden, heads, inner, text_rows, latent_rows, tables))
    for index in range(singles):
        b.enter_layer(layers + index)
        blocks.append(_flux2_single(b, hidden, heads, inner, tables))
    b.enter_layer(-1)
    norm_out = b.linear("norm_out.linear", hidden, 2 * hidden)
    proj_out = b.linear("proj_out", hidden, int(config.get("out_channels") or channels))

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.sequence, m.mask = (text_rows + latent_rows) // m.batch, None
        itemsize = x_embedder.weight.itemsize
        latents = m.new(latent_rows * channels, itemsize)
        prompts = m.new(text_rows * context_embedder.fin, itemsize)
        time = m.new(m.batch * embedders[0].fin, itemsize)
        emb = apply(m, embedders[1], ops.unary(m, apply(m, embedders[0], time)))
        m.shared = [emb, *(apply(m, modulation, ops.unary(m, emb)) for modulation in modulations)]
        tables[:] = [(m.new(m.sequence * head_dim, FP32), m.new(m.sequence * head_dim, FP32))]
        x = apply(m, x_embedder, latents)
        m.beside = apply(m, context_embedder, prompts)
        return m.tape.leaf(x, Anchor) if m.input_grads and x.node is None else x

    def join(m: Machine, x: Tensor) -> Tensor:
        text, m.beside = m.beside, None
        return ops.concat(m, (text, x)) if text is not None else x

    def finish(m: Machine, x: Tensor) -> Tensor:
        latents = ops.narrow(m, x, latent_rows * hidden)
        scale, shift = pieces(m, apply(m, norm_out, ops.unary(m, m.shared[0])), 2)
        out = apply(m, proj_out, modulated(m, bare_norm(m, latents, hidden), shift, scale))
        m.shared = []
        return out

    stage = Stage(embed, blocks, finish, {layers: join})
    return Model([stage], None, None, hidden, 0, causal=False, loss=squared_error, names_embedding=False)


def rms(b: Builder, width: int) -> Callable[[Machine, Tensor], Tensor]:
    """`torch.nn.RMSNorm`: one kernel (`_fused_rms_norm`, torch 2.13), which autocast runs in float32."""
    weight = b.norm("norm", width)

    def norm(m: Machine, x: Tensor) -> Tensor:
        if not m.autocast:
            return parts.fused_norm(m, x, weight, width)
        return parts.fused_norm(m, ops.cast(m, x, FP32), ops.cast(m, weight, FP32), width)

    return norm


def attended(m: Machine, q: Tensor, k: Tensor, v: Tensor, heads: int, hidden: int) -> Tensor:
    rows = q.numel // hidden // m.batch
    head_dim = hidden // heads
    return attend(m, q, k, v, Shape(m.batch, rows, rows, heads, heads, head_dim, head_dim, causal=False))


def _swiglu(m: Machine, both: Tensor) -> Tensor:
    gate, up = ops.split(m, both, (both.numel // 2, both.numel // 2))
    return ops.mul(m, ops.unary(m, gate), up)


def _flux2_double(
    b: Builder, hidden: int, heads: int, inner: int, text_rows: int, latent_rows: int, tables: list[tuple[Tensor, Tensor]]
) -> Block:
    """Two streams with their own weights, attending together."""
    b.parent = "attn"
    head_dim = hidden // heads
    own = [b.linear(name, hidden, hidden) for name in ("to_q", "to_k", "to_v")]
    norms = [rms(b, head_dim) for _ in range(4)]
    b.parent = "to_out"
    out = b.linear("0", hidden, hidden)
    b.parent = "attn"
    added = [b.linear(name, hidden, hidden) for name in ("add_q_proj", "add_k_proj", "add_v_proj")]
    added_out = b.linear("to_add_out", hidden, hidden)
    b.parent = "ff"
    feeds = [(b.linear("linear_in", hidden, 2 * inner), b.linear("linear_out", inner, hidden)) for _ in range(2)]

    def attention(m: Machine, normed: Tensor, words: Tensor) -> Streams:
        q, k, v = (apply(m, projection, normed) for projection in own)
        tq, tk, tv = (apply(m, projection, words) for projection in added)
        q = norms[0](m, q)
        k = norms[1](m, k)
        tq = norms[2](m, tq)
        tk = norms[3](m, tk)
        q = ops.concat(m, (tq, q))
        k = ops.concat(m, (tk, k))
        v = ops.concat(m, (tv, v))
        q = turn(m, q, tables[-1])
        k = turn(m, k, tables[-1])
        mixed = attended(m, q, k, v, heads, hidden)
        words, mixed = ops.split(m, mixed, (text_rows * hidden, latent_rows * hidden))
        words = apply(m, added_out, words)
        mixed = apply(m, out, mixed)
        return mixed, words

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        text = m.beside
        assert text is not None
        image_mods, text_mods = pieces(m, m.shared[1], 6), pieces(m, m.shared[2], 6)
        normed = bare_norm(m, x, hidden)
        normed = modulated(m, normed, image_mods[0], image_mods[1])
        words = bare_norm(m, text, hidden)
        words = modulated(m, words, text_mods[0], text_mods[1])
        mixed, text_mixed = attention(m, normed, words)
        mixed = ops.mul(m, image_mods[2], mixed)
        x = ops.add(m, x, mixed)
        normed = bare_norm(m, x, hidden)
        normed = scaled(m, normed, image_mods[3], image_mods[4])
        fed = _fed(m, feeds[0], normed)
        x = ops.add(m, x, ops.mul(m, image_mods[5], fed))
        text_mixed = ops.mul(m, text_mods[2], text_mixed)
        text = ops.add(m, text, text_mixed)
        words = bare_norm(m, text, hidden)
        words = scaled(m, words, text_mods[3], text_mods[4])
        text_fed = _fed(m, feeds[1], words)
        m.beside = ops.add(m, text, ops.mul(m, text_mods[5], text_fed))
        return x

    return block


def _fed(m: Machine, feed: tuple[Linear, Linear], x: Tensor) -> Tensor:
    """`Flux2FeedForward`."""
    x = apply(m, feed[0], x)
    x = _swiglu(m, x)
    return apply(m, feed[1], x)


def _flux2_single(b: Builder, hidden: int, heads: int, inner: int, tables: list[tuple[Tensor, Tensor]]) -> Block:
    """One stream; attention and feed-forward side by side between two fused projections."""
    b.parent = "attn"
    into = b.linear("to_qkv_mlp_proj", hidden, 3 * hidden + 2 * inner)
    q_norm, k_norm = rms(b, hidden // heads), rms(b, hidden // heads)
    out = b.linear("to_out", hidden + inner, hidden)

    def attention(m: Machine, x: Tensor) -> Tensor:
        numel = x.numel
        x = apply(m, into, x)
        qkv, mlp = ops.split(m, x, (3 * numel, x.numel - 3 * numel))
        q, k, v = ops.split(m, qkv, (numel, numel, numel))
        q = q_norm(m, q)
        k = k_norm(m, k)
        q = turn(m, q, tables[-1])
        k = turn(m, k, tables[-1])
        x = attended(m, q, k, v, heads, hidden)
        mlp = _swiglu(m, mlp)
        x = ops.concat(m, (x, mlp))
        return apply(m, out, x)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        shift, scale, gate = pieces(m, m.shared[3], 3)
        normed = bare_norm(m, x, hidden)
        normed = modulated(m, normed, shift, scale)
        mixed = attention(m, normed)
        return gated(m, x, gate, mixed)

    return block


def _cogvideox(b: Builder, a: Architecture, layers: int) -> Model:
    config = a.config
    heads, head_dim = int(config.get("num_attention_heads") or 30), int(config.get("attention_head_dim") or 64)
    hidden, time = heads * head_dim, int(config.get("time_embed_dim") or 512)
    patch, channels = int(config.get("patch_size") or 2), int(config.get("in_channels") or 16)
    text_rows, latent_rows = _rows(b)
    rotary = bool(config.get("use_rotary_positional_embeddings"))
    tables: list[tuple[Tensor, Tensor]] = []
    b.enter_layer(-1)
    positions = None if rotary else b.buffer((text_rows + latent_rows) // b.machine.batch * hidden, b.setup.compute_itemsize)
    conv, conv_bias = b.parameter("proj", "conv", (hidden, channels * patch * patch)), b.vector("proj.bias", hidden)
    text_proj = b.linear("text_proj", int(config.get("text_embed_dim") or 4096), hidden, bias=True)
    embedders = [b.linear("linear_1", hidden, time, bias=True), b.linear("linear_2", time, time, bias=True)]
    blocks: list[Block] = []
    for index in range(layers):
        b.enter_layer(index)
        blocks.append(_cogvideox_block(b, hidden, heads, time, text_rows, latent_rows, rotary, tables))
    b.enter_layer(-1)
    last = _affine(b, hidden)
    modulation = b.linear("norm_out.linear", time, 2 * hidden, bias=True)
    out_norm = _affine(b, hidden)
    proj_out = b.linear("proj_out", hidden, patch * patch * int(config.get("out_channels") or 16), bias=True)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        m.sequence, m.mask = (text_rows + latent_rows) // m.batch, None
        itemsize = conv.itemsize
        steps = m.new(m.batch * hidden, itemsize)
        m.shared = [apply(m, embedders[1], ops.unary(m, apply(m, embedders[0], steps)))]
        pixels = m.new(latent_rows * channels * patch * patch, itemsize)
        prompts = m.new(text_rows * text_proj.fin, itemsize)
        words = apply(m, text_proj, prompts)
        image = ops.copy(m, convolutions.convolution(m, pixels, conv, conv_bias, latent_rows * hidden))
        x = ops.concat(m, (words, image))
        if positions is not None:
            x = ops.add(m, x, ops.cast(m, positions, x.itemsize))
        else:
            size = latent_rows // m.batch * head_dim
            tables[:] = [(m.new(size, FP32), m.new(size, FP32))]
        x = m.tape.leaf(x, Anchor) if m.input_grads and x.node is None else x
        m.beside = ops.narrow(m, x, text_rows * hidden)
        return ops.narrow(m, x, latent_rows * hidden)

    def finish(m: Machine, x: Tensor) -> Tensor:
        x = last(m, x)
        m.beside = None
        shift, scale = pieces(m, apply(m, modulation, ops.unary(m, m.shared[0])), 2)
        x = ops.add(m, ops.mul(m, out_norm(m, x), ops.shift(m, scale)), shift)
        x = apply(m, proj_out, x)
        m.shared = []
        return x

    return Model([Stage(embed, blocks, finish)], None, None, hidden, 0, causal=False, loss=squared_error, names_embedding=False)


def _by_heads(m: Machine, x: Tensor) -> Tensor:
    """`view(batch, rows, heads, head_dim).transpose(1, 2)` in front of a norm, whose gradient comes head after head and is copied back."""
    return ops.narrow(m, x, x.numel)


def _affine(b: Builder, width: int) -> Callable[[Machine, Tensor], Tensor]:
    weight, bias = b.norm("norm", width), b.vector("norm.bias", width)
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


def _cogvideox_block(
    b: Builder, hidden: int, heads: int, time: int, text_rows: int, latent_rows: int, rotary: bool,
    tables: list[tuple[Tensor, Tensor]],
) -> Block:  # fmt: skip
    sizes = (text_rows * hidden, latent_rows * hidden)
    head_dim = hidden // heads

    def modulated_norm() -> Callable[[Machine, Tensor, Tensor], tuple[Streams, Streams]]:
        """`CogVideoXLayerNormZero`: normalised streams, and their gates."""
        linear, norm = b.linear("linear", time, 6 * hidden, bias=True), _affine(b, hidden)

        def run(m: Machine, text: Tensor, latents: Tensor) -> tuple[Streams, Streams]:
            mods = pieces(m, apply(m, linear, ops.unary(m, m.shared[0])), 6)
            image = ops.add(m, ops.mul(m, norm(m, latents), ops.shift(m, mods[1])), mods[0])
            words = ops.add(m, ops.mul(m, norm(m, text), ops.shift(m, mods[4])), mods[3])
            return (image, words), (mods[2], mods[5])

        return run

    first = modulated_norm()
    b.parent = "attn1"
    q_norm, k_norm = _affine(b, head_dim), _affine(b, head_dim)
    q, k, v = (b.linear(name, hidden, hidden, bias=True) for name in ("to_q", "to_k", "to_v"))
    b.parent = "to_out"
    out = b.linear("0", hidden, hidden, bias=True)
    second = modulated_norm()
    b.parent = "net"
    up, down = b.linear("proj", hidden, 4 * hidden, bias=True), b.linear("2", 4 * hidden, hidden, bias=True)

    def rotated(m: Machine, x: Tensor) -> Tensor:
        """`x[:, :, text:] = apply_rotary_emb(x[:, :, text:])`, in place."""
        turned = turn(m, ops.narrow(m, x, sizes[1]), tables[-1])
        numel, few, itemsize = x.numel, turned.numel, x.itemsize
        view = Tensor(x.storage, numel, itemsize, x.node, x.index)
        return m.tape.record(view, (x, turned), lambda g: (m.new(numel, itemsize), m.new(few, itemsize)))

    def attention(m: Machine, words: Tensor, image: Tensor) -> tuple[Tensor, ...]:
        x = ops.concat(m, (words, image))
        query, key, value = apply(m, q, x), apply(m, k, x), apply(m, v, x)
        query = q_norm(m, _by_heads(m, query))
        key = k_norm(m, _by_heads(m, key))
        if rotary:
            query = rotated(m, query)
            key = rotated(m, key)
        x = attended(m, query, key, value, heads, hidden)
        x = ops.copy(m, x)  # head after head, as the norms leave the queries
        x = apply(m, out, x)
        return ops.split(m, x, sizes)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        text = m.beside
        assert text is not None
        (image, words), (gate, text_gate) = first(m, text, x)
        text_mixed, mixed = attention(m, words, image)
        x = gated(m, x, gate, mixed)
        text = gated(m, text, text_gate, text_mixed)
        (image, words), (gate, text_gate) = second(m, text, x)
        image = ops.concat(m, (words, image))
        fed = feed_forward(m, (up, down), image)
        latents_fed = ops.narrow(m, fed, sizes[1])
        x = gated(m, x, gate, latents_fed)
        text_fed = ops.narrow(m, fed, sizes[0])
        m.beside = gated(m, text, text_gate, text_fed)
        return x

    return block
