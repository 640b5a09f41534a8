"""FLUX.1: transformer blocks of two streams that attend together, then blocks of one.

Read in diffusers 0.42 `models/transformers/transformer_flux.py`, `models/normalization.py` and `models/embeddings.py`. Both streams travel
in one tensor from block to block. Latents and text conditions are computed beforehand.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families.dit import _attend as attended
from memlint.memory.families.dit import _bare_norm as bare_norm
from memlint.memory.families.dit import _gated as gated
from memlint.memory.families.dit import _modulated as modulated
from memlint.memory.families.dit import _parts as pieces
from memlint.memory.families.dit import _rms as rms
from memlint.memory.families.dit import _rows as rows_of
from memlint.memory.families.dit import _turned as turned
from memlint.memory.families.dit import squared_error
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture

Tables = list[tuple[Tensor, Tensor]]


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The transformer and its regression loss."""
    if layers < b.setup.layers:
        raise NotUniform
    config = a.config
    heads, head_dim = int(config.get("num_attention_heads") or 24), int(config.get("attention_head_dim") or 128)
    hidden, channels = heads * head_dim, int(config.get("in_channels") or 64)
    text_rows, latent_rows = rows_of(b)
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
        x = ops.concat(m, (apply(m, context_embedder, given[1]), latents))
        return m.tape.leaf(x) if m.input_grads and x.node is None else x

    def finish(m: Machine, x: Tensor) -> Tensor:
        latents = ops.narrow(m, x, latent_rows * hidden)
        scale, shift = pieces(m, apply(m, norm_out, ops.unary(m, m.shared[0])), 2)
        out = apply(m, proj_out, modulated(m, bare_norm(m, latents, hidden), shift, scale))
        m.shared = []
        return out

    return Model([Stage(embed, blocks, finish)], None, None, hidden, 0, causal=False, loss=squared_error, names_embedding=False)


def _zero_norm(b: Builder, hidden: int, count: int) -> Callable[[Machine, Tensor], tuple[Tensor, tuple[Tensor, ...]]]:
    """`AdaLayerNormZero`: the modulated norm, and all `count` vectors made from the conditioning (shift and scale come first)."""
    linear = b.linear("linear", hidden, count * hidden, bias=True)

    def norm(m: Machine, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        mods = pieces(m, apply(m, linear, ops.unary(m, m.shared[0])), count)
        return modulated(m, bare_norm(m, x, hidden), mods[0], mods[1]), mods

    return norm


def _double(b: Builder, hidden: int, heads: int, sizes: tuple[int, int], tables: Tables) -> Block:
    """`FluxTransformerBlock`."""
    head_dim = hidden // heads
    norms = [_zero_norm(b, hidden, 6), _zero_norm(b, hidden, 6)]
    b.parent = "attn"
    own = [b.linear(name, hidden, hidden, bias=True) for name in ("to_q", "to_k", "to_v")]
    added = [b.linear(name, hidden, hidden, bias=True) for name in ("add_q_proj", "add_k_proj", "add_v_proj")]
    scales = [rms(b, head_dim) for _ in range(4)]
    added_out = b.linear("to_add_out", hidden, hidden, bias=True)
    b.parent = "to_out"
    out = b.linear("0", hidden, hidden, bias=True)
    b.parent = "net"
    feeds = [(b.linear("proj", hidden, 4 * hidden, bias=True), b.linear("2", 4 * hidden, hidden, bias=True)) for _ in range(2)]

    def attention(m: Machine, latents: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (apply(m, projection, latents) for projection in own)
        tq, tk, tv = (apply(m, projection, text) for projection in added)
        q, k = scales[0](m, q), scales[1](m, k)
        tq, tk = scales[2](m, tq), scales[3](m, tk)
        q, k, v = ops.concat(m, (tq, q)), ops.concat(m, (tk, k)), ops.concat(m, (tv, v))
        q, k = turned(m, q, tables[-1]), turned(m, k, tables[-1])
        mixed = ops.cast(m, attended(m, q, k, v, heads, hidden), q.itemsize)
        text_mixed, mixed = ops.split(m, mixed, sizes)
        mixed = apply(m, out, ops.copy(m, mixed))
        return mixed, apply(m, added_out, ops.copy(m, text_mixed))

    def fed(m: Machine, x: Tensor, place: int, mods: tuple[Tensor, ...]) -> Tensor:
        up, down = feeds[place]
        normed = modulated(m, bare_norm(m, x, hidden), mods[3], mods[4])
        return gated(m, x, mods[5], apply(m, down, ops.unary(m, apply(m, up, normed))))

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        text, latents = ops.split(m, x, sizes)
        normed, mods = norms[0](m, latents)
        normed_text, text_mods = norms[1](m, text)
        mixed, text_mixed = attention(m, normed, normed_text)
        latents = fed(m, gated(m, latents, mods[2], mixed), 0, mods)
        text = fed(m, gated(m, text, text_mods[2], text_mixed), 1, text_mods)
        del mixed, text_mixed, normed, normed_text
        return ops.concat(m, (text, latents))

    return block


def _single(b: Builder, hidden: int, heads: int, sizes: tuple[int, int], tables: Tables) -> Block:
    """`FluxSingleTransformerBlock`: attention and feed-forward side by side."""
    norm = _zero_norm(b, hidden, 3)
    b.parent = ""
    up = b.linear("proj_mlp", hidden, 4 * hidden, bias=True)
    out = b.linear("proj_out", 5 * hidden, hidden, bias=True)
    b.parent = "attn"
    own = [b.linear(name, hidden, hidden, bias=True) for name in ("to_q", "to_k", "to_v")]
    scales = [rms(b, hidden // heads) for _ in range(2)]

    def attention(m: Machine, x: Tensor) -> Tensor:
        q, k, v = (apply(m, projection, x) for projection in own)
        q, k = scales[0](m, q), scales[1](m, k)
        q, k = turned(m, q, tables[-1]), turned(m, k, tables[-1])
        return ops.cast(m, attended(m, q, k, v, heads, hidden), q.itemsize)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        x = residual = ops.concat(m, ops.split(m, x, sizes))
        normed, mods = norm(m, x)
        fed = ops.unary(m, apply(m, up, normed))
        mixed = attention(m, normed)
        x = ops.concat(m, (mixed, fed))
        return ops.add(m, residual, ops.mul(m, mods[2], apply(m, out, x)))

    return block
