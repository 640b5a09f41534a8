"""Llama 3.2 Vision: a decoder some of whose layers look at the images by cross-attention, and skip themselves where there are none.

Read in transformers 5.24 `models/mllama/modeling_mllama.py`. Every image fills `max_num_tiles` tiles, padded if it needs fewer, and all
tiles of an image attend to one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory import convolutions, ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.checkpointing import run
from memlint.memory.families import llama, vision
from memlint.memory.families.llama_styles import STYLES
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.families.vision_language import text_of
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.tensor import INT64, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import Any

TOWER = vision.Style(qkv_bias=False, out_bias=False, patch_bias=False)


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Tower, projector and decoder."""
    config = a.config.get("vision_config")
    if not isinstance(config, Mapping):
        raise CannotEstimate(f"no vision configuration in {a.name}")
    b.enter_layer(-1)
    media = b.setup.media
    b.frozen = not media.vision_trained
    see = _tower(b, config)
    text = text_of(a)
    wide = int(config.get("hidden_size") or 1280) * (1 + len(config.get("intermediate_layers_indices") or ()))
    b.frozen = not media.aligner_trained
    project = b.linear("multi_modal_projector", wide, text.hidden_size or 0, bias=True)
    b.frozen = not media.language_trained
    b.model_type = "llama"
    looking = text.config.get("cross_attention_layers") or ()
    style = STYLES[text.model_type]

    def block(index: int, positions: llama.Rotary) -> Block:
        if index in looking:
            return _cross_block(b, text, index)
        return llama.block_of(b, text, style, index, llama.attention_of(b, text, style, positions, index), llama.mlp_of)

    model = llama.decoder(b, text, layers, style, block=block)
    b.frozen = False
    stage = model.stages[0]
    seen_by = text.hidden_size or 0

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        images = m.batch * media.images
        if not images:
            return stage.embed(m, context)
        features = see(m, images)
        m.named.append(features)
        states = apply(m, project, features)
        del features
        numel = m.tokens * (states.numel // seen_by // m.batch)
        mask = m.new(numel, b.setup.weight_itemsize)  # of what each token sees of which tile
        rows = m.new(m.tokens, b.setup.weight_itemsize)
        x = stage.embed(m, context)
        m.shared += [states, mask, rows]
        return x

    model.stages[0] = Stage(embed, stage.blocks, stage.finish)
    return model


def _cross_block(b: Builder, a: Architecture, index: int) -> Block:
    """`MllamaCrossAttentionDecoderLayer`: both branches are scaled by the tanh of a learned number."""
    hidden, heads = a.hidden_size or 0, a.heads or 1
    kv_heads, head_dim = a.kv_heads or heads, hidden // heads
    style = STYLES[a.model_type]
    b.parent = "cross_attn"
    widths = (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim)
    q, k, v = (b.linear(name, hidden, width) for name, width in zip(("q_proj", "k_proj", "v_proj"), widths, strict=True))
    out = b.linear("o_proj", hidden, hidden)
    q_norm, k_norm = (llama.norm_of(b, style, name, head_dim) for name in ("q_norm", "k_norm"))
    before = llama.norm_of(b, style, "input_layernorm", hidden)
    gates = [b.vector(name, 1, "scale") for name in ("cross_attn_attn_gate", "cross_attn_mlp_gate")]
    feed_forward = llama.mlp_of(b, a, style, index)
    after = llama.norm_of(b, style, "post_attention_layernorm", hidden)

    def attention(m: Machine, x: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        query = q_norm(m, apply(m, q, x))
        key, value = apply(m, k, states), apply(m, v, states)
        key = k_norm(m, key)
        length = states.numel // hidden // m.batch
        kept, m.mask = m.mask, mask
        shape = Shape(m.batch, m.sequence, length, heads, kv_heads, head_dim, head_dim, causal=False)
        mixed = attend(m, query, key, value, shape)
        m.mask = kept
        del query, key, value
        return apply(m, out, mixed)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        if not m.shared:
            return x
        states, mask, rows = m.shared
        residual = x
        x = attention(m, before(m, x), states, mask)
        x = ops.add(m, residual, ops.mul(m, ops.unary(m, gates[0], keeps="output"), x))
        residual = x
        x = feed_forward(m, after(m, x))
        x = ops.mul(m, rows, x)
        return ops.add(m, residual, ops.mul(m, ops.unary(m, gates[1], keeps="output"), x))

    return block


def _tower(b: Builder, config: Mapping[str, Any]) -> Callable[[Machine, int], Tensor]:
    """`MllamaVisionModel`: a transformer over the tiles of an image, a second one whose branches are gated, and states in between."""
    hidden, side = int(config.get("hidden_size") or 1280), int(config.get("image_size") or 448)
    patch, tiles = int(config.get("patch_size") or 14), int(config.get("max_num_tiles") or 4)
    shapes = int(config.get("max_aspect_ratio_id") or len(config.get("supported_aspect_ratios") or ()) or 8) + 1
    patches = (side // patch) ** 2 + 1
    padded = -(-patches // 8) * 8
    channels = int(config.get("num_channels") or 3)
    picked = tuple(config.get("intermediate_layers_indices") or ())
    heads = int(config.get("attention_heads") or config.get("num_attention_heads") or 16)
    config = {**config, "num_attention_heads": heads}
    weight = b.parameter("patch_embedding", "conv", (hidden, channels * patch * patch))
    first = b.parameter("class_embedding", "token", (hidden,))
    gate, places = b.vector("gate", 1, "scale"), b.parameter("embedding", "embedding", (patches, hidden))
    tile_places = b.parameter("tile_embedding", "embedding", (shapes, tiles * patches * hidden))

    def shape_embedding() -> Callable[[Machine, Tensor, Tensor], Tensor]:
        """One vector for each tile, by the shape of the image."""
        table, gate = b.parameter("embedding", "embedding", (shapes, tiles * hidden)), b.vector("gate", 1, "scale")

        def add(m: Machine, x: Tensor, ids: Tensor) -> Tensor:
            rows = ops.embedding(m, table, tiles * hidden, ids.numel, ids, inputs=False)
            return ops.add(m, x, ops.mul(m, rows, ops.unary(m, gate, keeps="output")))

        return add

    before, behind = shape_embedding(), shape_embedding()
    norm_before, norm_behind = (vision.norm_of(b, TOWER, name, hidden) for name in ("layernorm_pre", "layernorm_post"))
    tower = vision.Tower(hidden, lambda m: m.new(0, 2), [], lambda m, x: x, 1, tiles * padded)
    own = [vision.block_of(b, config, TOWER, tower) for _ in range(int(config.get("num_hidden_layers") or 32))]
    joint = [vision.block_of(b, config, TOWER, tower, gated=True) for _ in range(int(config.get("num_global_layers") or 8))]

    def embed(m: Machine, images: int) -> tuple[Tensor, Tensor]:
        ids = m.new(images, INT64)
        tower.pixels = m.new(images * tiles * channels * side * side, b.setup.weight_itemsize)
        x = convolutions.convolution(m, tower.pixels, weight, None, images * tiles * (patches - 1) * hidden)
        x = m.tape.leaf(x) if m.input_grads and x.node is None else x
        x = before(m, x, ids)
        x = ops.concat(m, (vision.spread_token(m, first, images * tiles * hidden), x))
        gated = ops.mul(m, ops.scale(m, ops.unary(m, gate, keeps="output")), places)
        x = ops.add(m, x, gated)
        rows = ops.embedding(m, tile_places, tiles * patches * hidden, images, ids, inputs=False)
        x = ops.add(m, x, ops.mul(m, ops.unary(m, gate, keeps="output"), rows))
        return ops.pad(m, norm_before(m, x), images * tiles * padded * hidden), ids

    def see(m: Machine, images: int) -> Tensor:
        tower.images = images
        x, ids = embed(m, images)
        tower.mask = m.new(images * (tiles * padded) ** 2, m.autocast or b.setup.weight_itemsize)  # a matrix product
        states = []
        for block in own:
            x = run(m, block, x, None)
            states.append(x)
        x = behind(m, norm_behind(m, x), ids)
        for block in joint:
            x = run(m, block, x, None)
        tower.mask = None
        between = ops.concat(m, tuple(states[index] for index in picked))
        states.clear()
        kept = images * tiles * patches * hidden
        return ops.concat(m, (ops.narrow(m, x, kept), ops.narrow(m, between, kept * len(picked))))

    return see
