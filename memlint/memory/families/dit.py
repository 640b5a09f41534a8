"""Diffusion transformers: FLUX.2 (two streams, then one) and CogVideoX (two streams that share their weights).

Read in diffusers 0.38 `models/transformers/transformer_flux2.py`, `models/transformers/cogvideox_transformer_3d.py`,
`models/normalization.py` and `models/embeddings.py` (`apply_rotary_emb`). Text and latent rows travel in one tensor; blocks split it.
Latents and text conditions are computed beforehand.
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
from memlint.memory.tensor import FP32, Tensor
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


def _modulated(m: Machine, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """`(1 + scale) * x + shift` with one vector per sample."""
    return ops.add(m, ops.mul(m, ops.shift(m, scale), x), shift)


def _gated(m: Machine, x: Tensor, gate: Tensor, update: Tensor) -> Tensor:
    """`x + gate * update`."""
    return ops.add(m, x, ops.mul(m, gate, update))


def _parts(m: Machine, x: Tensor, count: int) -> tuple[Tensor, ...]:
    """Shift, scale and gate vectors of a modulation."""
    return ops.split(m, x, (x.numel // count,) * count)


def _turned(m: Machine, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """`apply_rotary_emb`: pairs are turned, products in float32, the sum cast back."""
    real, imaginary = ops.split(m, x, (x.numel // 2, x.numel // 2))
    turned = ops.concat(m, (ops.scale(m, imaginary), real))
    left = ops.mul(m, ops.cast(m, x, FP32), tables[0])
    return ops.cast(m, ops.add(m, left, ops.mul(m, ops.cast(m, turned, FP32), tables[1])), x.itemsize)


def squared_error(m: Machine, prediction: Tensor) -> Tensor:
    """`F.mse_loss(prediction.float(), target.float())`."""
    wide = ops.cast(m, prediction, FP32)
    target = m.new(prediction.numel, FP32)
    out = m.new(1, FP32)
    numel = wide.numel
    return m.tape.record(out, (wide,), lambda g: (m.new(numel, FP32),), (wide.storage, target.storage))


def _bare_norm(m: Machine, x: Tensor, width: int) -> Tensor:
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
        x = ops.concat(m, (apply(m, context_embedder, prompts), apply(m, x_embedder, latents)))
        return m.tape.leaf(x) if m.input_grads and x.node is None else x

    def finish(m: Machine, x: Tensor) -> Tensor:
        latents = ops.narrow(m, x, latent_rows * hidden)
        scale, shift = _parts(m, apply(m, norm_out, ops.unary(m, m.shared[0])), 2)
        out = apply(m, proj_out, _modulated(m, _bare_norm(m, latents, hidden), shift, scale))
        m.shared = []
        return out

    return Model([Stage(embed, blocks, finish)], None, None, hidden, 0, causal=False, loss=squared_error, names_embedding=False)


def _rms(b: Builder, width: int) -> Callable[[Machine, Tensor], Tensor]:
    """`torch.nn.RMSNorm`: one kernel (`_fused_rms_norm`, torch 2.13), which autocast runs in float32."""
    weight = b.norm("norm", width)

    def norm(m: Machine, x: Tensor) -> Tensor:
        if not m.autocast:
            return parts.fused_norm(m, x, weight, width)
        return parts.fused_norm(m, ops.cast(m, x, FP32), ops.cast(m, weight, FP32), width)

    return norm


def _attend(m: Machine, q: Tensor, k: Tensor, v: Tensor, heads: int, hidden: int) -> Tensor:
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
    norms = [_rms(b, head_dim) for _ in range(4)]
    b.parent = "to_out"
    out = b.linear("0", hidden, hidden)
    b.parent = "attn"
    added = [b.linear(name, hidden, hidden) for name in ("add_q_proj", "add_k_proj", "add_v_proj")]
    added_out = b.linear("to_add_out", hidden, hidden)
    b.parent = "ff"
    feeds = [(b.linear("linear_in", hidden, 2 * inner), b.linear("linear_out", inner, hidden)) for _ in range(2)]

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        text, latents = ops.split(m, x, (text_rows * hidden, latent_rows * hidden))
        image_mods, text_mods = _parts(m, m.shared[1], 6), _parts(m, m.shared[2], 6)
        normed = _modulated(m, _bare_norm(m, latents, hidden), image_mods[0], image_mods[1])
        normed_text = _modulated(m, _bare_norm(m, text, hidden), text_mods[0], text_mods[1])
        q, k, v = (apply(m, projection, normed) for projection in own)
        tq, tk, tv = (apply(m, projection, normed_text) for projection in added)
        q, k, tq, tk = norms[0](m, q), norms[1](m, k), norms[2](m, tq), norms[3](m, tk)
        q, k, v = ops.concat(m, (tq, q)), ops.concat(m, (tk, k)), ops.concat(m, (tv, v))
        del tq, tk, tv, normed, normed_text
        q, k = _turned(m, q, tables[-1]), _turned(m, k, tables[-1])
        mixed = _attend(m, q, k, v, heads, hidden)
        del q, k, v
        text_mixed, mixed = ops.split(m, mixed, (text_rows * hidden, latent_rows * hidden))
        text_mixed, mixed = apply(m, added_out, text_mixed), apply(m, out, mixed)
        latents = _gated(m, latents, image_mods[2], mixed)
        latents = _fed(m, latents, feeds[0], image_mods, hidden)
        text = _gated(m, text, text_mods[2], text_mixed)
        del mixed, text_mixed
        return ops.concat(m, (_fed(m, text, feeds[1], text_mods, hidden), latents))

    return block


def _fed(m: Machine, x: Tensor, feed: tuple[Linear, Linear], mods: tuple[Tensor, ...], hidden: int) -> Tensor:
    """Modulated norm, SwiGLU feed-forward, gated addition."""
    normed = _modulated(m, _bare_norm(m, x, hidden), mods[3], mods[4])
    return _gated(m, x, mods[5], apply(m, feed[1], _swiglu(m, apply(m, feed[0], normed))))


def _flux2_single(b: Builder, hidden: int, heads: int, inner: int, tables: list[tuple[Tensor, Tensor]]) -> Block:
    """One stream; attention and feed-forward side by side between two fused projections."""
    b.parent = "attn"
    into = b.linear("to_qkv_mlp_proj", hidden, 3 * hidden + 2 * inner)
    q_norm, k_norm = _rms(b, hidden // heads), _rms(b, hidden // heads)
    out = b.linear("to_out", hidden + inner, hidden)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        shift, scale, gate = _parts(m, m.shared[3], 3)
        normed = _modulated(m, _bare_norm(m, x, hidden), shift, scale)
        rows = x.numel // hidden
        q, k, v, mlp = ops.split(m, apply(m, into, normed), (x.numel, x.numel, x.numel, rows * 2 * inner))
        del normed
        q, k = _turned(m, q_norm(m, q), tables[-1]), _turned(m, k_norm(m, k), tables[-1])
        mixed = _attend(m, q, k, v, heads, hidden)
        del q, k, v
        joined = ops.concat(m, (mixed, _swiglu(m, mlp)))
        del mixed, mlp
        return _gated(m, x, gate, apply(m, out, joined))

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
        image = ops.copy(m, convolutions.convolution(m, pixels, conv, conv_bias, latent_rows * hidden))
        x = ops.concat(m, (apply(m, text_proj, prompts), image))
        if rotary:
            size = latent_rows // m.batch * head_dim
            tables[:] = [(m.new(size, FP32), m.new(size, FP32))]
        else:
            x = ops.add(m, x, m.new(m.sequence * hidden, x.itemsize))
        return m.tape.leaf(x) if m.input_grads and x.node is None else x

    def finish(m: Machine, x: Tensor) -> Tensor:
        latents = ops.narrow(m, last(m, x), latent_rows * hidden)
        shift, scale = _parts(m, apply(m, modulation, ops.unary(m, m.shared[0])), 2)
        out = apply(m, proj_out, _modulated(m, out_norm(m, latents), shift, scale))
        m.shared = []
        return out

    return Model([Stage(embed, blocks, finish)], None, None, hidden, 0, causal=False, loss=squared_error, names_embedding=False)


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
            mods = _parts(m, apply(m, linear, ops.unary(m, m.shared[0])), 6)
            image = ops.add(m, ops.mul(m, norm(m, latents), ops.shift(m, mods[1])), mods[0])
            words = ops.add(m, ops.mul(m, norm(m, text), ops.shift(m, mods[4])), mods[3])
            return (words, image), (mods[5], mods[2])

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
        turned = _turned(m, ops.narrow(m, x, sizes[1]), tables[-1])
        numel, few, itemsize = x.numel, turned.numel, x.itemsize
        view = Tensor(x.storage, numel, itemsize, x.node, x.index)
        return m.tape.record(view, (x, turned), lambda g: (m.new(numel, itemsize), m.new(few, itemsize)))

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        text, latents = ops.split(m, x, sizes)
        (words, image), (text_gate, gate) = first(m, text, latents)
        joined = ops.concat(m, (words, image))
        query, key, value = q_norm(m, apply(m, q, joined)), k_norm(m, apply(m, k, joined)), apply(m, v, joined)
        if rotary:
            query, key = rotated(m, query), rotated(m, key)
        mixed = apply(m, out, _attend(m, query, key, value, heads, hidden))
        del query, key, value, joined, words, image
        text_mixed, mixed = ops.split(m, mixed, sizes)
        latents, text = _gated(m, latents, gate, mixed), _gated(m, text, text_gate, text_mixed)
        del mixed, text_mixed
        (words, image), (text_gate, gate) = second(m, text, latents)
        joined = ops.concat(m, (words, image))
        fed = apply(m, down, ops.unary(m, apply(m, up, joined)))
        text_fed, fed = ops.split(m, fed, sizes)
        return ops.concat(m, (_gated(m, text, text_gate, text_fed), _gated(m, latents, gate, fed)))

    return block
