"""Gemma 4's vision tower, and the weights of its audio tower (transformers 5.24 `models/gemma4/modeling_gemma4.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.checkpointing import checkpointed_alone
from memlint.memory.families import parts
from memlint.memory.families.gemma4 import norm_of
from memlint.memory.families.model import Block
from memlint.memory.families.vision import Norm, Tower
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, INT64, Anchor, Grads, Tensor
from memlint.typed import Any


def vision_tower(b: Builder, config: Mapping[str, Any], image_size: int) -> Tower:
    """Patches projected by a linear, axial positions, four norms a block; patches are pooled by their places."""
    hidden, patch = int(config.get("hidden_size") or 768), int(config.get("patch_size") or 16)
    pooled = int(config.get("pooling_kernel_size") or 3) ** 2
    patches = (image_size // patch) ** 2 if image_size else int(config.get("default_output_length") or 280) * pooled
    since = len(b.parameters)
    project = b.linear("input_proj", 3 * patch * patch, hidden)
    places = b.parameter(
        "position_embedding_table", "embedding", (2 * int(config.get("position_embedding_size") or 10240), hidden)
    )
    tower = Tower(hidden, lambda m: m.new(0, 2), [], lambda m, x: x, 1, patches)
    tower.gathers = True
    for _ in range(int(config.get("num_hidden_layers") or 16)):
        tower.blocks.append(_block(b, config, tower))
    again = checkpointed_alone(b.setup, b.parameters[since:])
    head_dim = int(config.get("head_dim") or 64)
    padding: list[Tensor] = []
    """Which patches fill an image up."""

    def axis(m: Machine, ids: Tensor) -> Tensor:
        """Rows of one half of the table, whose gradient is put back into a whole."""
        out, numel, itemsize = m.new(tower.rows * hidden, places.itemsize), places.numel, places.itemsize

        def rule(g: Tensor) -> Grads:
            half = m.new(numel // 2, itemsize)
            whole = m.new(numel, itemsize)
            del half
            return (whole,)

        return m.tape.record(out, (places,), rule, (ids.storage,), kernel=True)

    def placed(m: Machine) -> Tensor:
        ids = m.new(2 * tower.rows, INT64)
        across, down = axis(m, ids), axis(m, ids)
        x = ops.add(m, across, down)
        return ops.where(m, padding[0], x, x.numel)

    def embed(m: Machine) -> Tensor:
        tower.pixels = m.new(tower.rows * 3 * patch * patch, b.setup.weight_itemsize)
        padding[:] = [m.new(tower.rows, BYTE)]
        x = apply(m, project, ops.scale(m, ops.shift(m, tower.pixels)))
        x = ops.add(m, x, placed(m))
        if x.node is None and again:
            x = m.tape.leaf(x, Anchor)
        tower.tables[:] = [(m.new(tower.rows * head_dim, x.itemsize), m.new(tower.rows * head_dim, x.itemsize))]
        return x

    def finish(m: Machine, x: Tensor) -> Tensor:
        itemsize, rows = x.itemsize, tower.rows // pooled
        x = ops.masked_fill(m, x, padding.pop())
        weights = m.new(tower.rows * tower.patches // pooled, FP32)
        x = ops.matmul(m, weights, ops.cast(m, x, FP32), rows * hidden)
        del weights
        x = ops.scale(m, ops.cast(m, ops.cast(m, x, itemsize), FP32))
        x = ops.gather(m, x, m.new(2 * rows, INT64), x.numel)
        if config.get("standardize"):
            x = ops.mul(m, ops.subtract(m, x, m.new(hidden, FP32)), m.new(hidden, FP32))
        return ops.cast(m, x, itemsize)

    tower.embed, tower.finish = embed, finish
    return tower


def patch_embedder(b: Builder, config: Mapping[str, Any], image_size: int) -> Tower:
    """What `gemma4_unified` has in a tower's place: large patches through a linear between norms, and places of their own."""
    patch = int(config.get("patch_size") or 16) * int(config.get("pooling_kernel_size") or 3)
    width, pixels = int(config.get("mm_embed_dim") or 3840), 3 * patch * patch
    patches = (image_size // patch) ** 2 if image_size else 280  # `max_soft_tokens` of the image processor
    tower = Tower(width, lambda m: m.new(0, 2), [], lambda m, x: x, 1, patches)
    tower.gathers = True
    first, second, third = (_layer_norm(b, size) for size in (pixels, width, width))
    dense = b.linear("patch_dense", pixels, width, bias=True)
    places = b.parameter("pos_embedding", "embedding", (2 * int(config.get("mm_posemb_size") or 1120), width))

    def embed(m: Machine) -> Tensor:
        rows = 2 * tower.rows
        tower.pixels = m.new(tower.rows * pixels, b.setup.weight_itemsize)
        x = first(m, tower.pixels)
        x = apply(m, dense, x)
        x = second(m, x)
        ids, valid = m.new(rows, INT64), m.new(rows, places.itemsize)
        placed = ops.mul(m, ops.gather(m, places, ids, rows * width), valid)
        placed = ops.sum_groups(m, placed, tower.rows * width)
        x = ops.add(m, x, placed)
        return third(m, x)

    tower.embed = embed
    return tower


def _layer_norm(b: Builder, width: int) -> Norm:
    weight, bias = b.norm("norm", width), b.vector("norm.bias", width)
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


Clipped = Callable[[Machine, Tensor], Tensor]


def _linear(b: Builder, config: Mapping[str, Any], fin: int, fout: int) -> Clipped:
    """`Gemma4ClippableLinear`: input and result are clamped, where the configuration says so."""
    linear = b.linear("linear", fin, fout)
    if not config.get("use_clipped_linears"):
        return lambda m, x: apply(m, linear, x)

    def clipped(m: Machine, x: Tensor) -> Tensor:
        x = ops.clamp(m, x)
        x = apply(m, linear, x)
        return ops.clamp(m, x)

    return clipped


def _block(b: Builder, config: Mapping[str, Any], tower: Tower) -> Block:
    hidden, heads = tower.hidden, int(config.get("num_attention_heads") or 12)
    head_dim, inner = int(config.get("head_dim") or 64), int(config.get("intermediate_size") or 3072)
    act = str(config.get("hidden_activation") or "gelu_pytorch_tanh")
    b.parent = "attn"
    q, k, v = (_linear(b, config, hidden, heads * head_dim) for _ in range(3))
    out = _linear(b, config, heads * head_dim, hidden)
    q_norm, k_norm, v_norm = norm_of(b, "q_norm", head_dim), norm_of(b, "k_norm", head_dim), norm_of(b, "v_norm", head_dim, False)
    b.parent = "mlp"
    gate, up, down = _linear(b, config, hidden, inner), _linear(b, config, hidden, inner), _linear(b, config, inner, hidden)
    names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    before, after, before_mlp, after_mlp = (norm_of(b, name, hidden) for name in names)

    def turned(m: Machine, x: Tensor) -> Tensor:
        """Half of each head by the place across, half by that down (`apply_multidimensional_rope`)."""
        halves = ops.split(m, x, (x.numel // 2, x.numel // 2))
        tables = [Tensor(table.storage, table.numel // 2, table.itemsize) for table in tower.tables[-1]]
        return ops.concat(m, tuple([parts.rotate(m, half, tables[0], tables[1]) for half in halves]))

    def attention(m: Machine, x: Tensor) -> Tensor:
        query = q(m, x)
        query = q_norm(m, query)
        query = turned(m, query)
        key = k(m, x)
        key = k_norm(m, key)
        key = turned(m, key)
        value = v(m, x)
        value = v_norm(m, value)
        shape = Shape(tower.images, tower.patches, tower.patches, heads, heads, head_dim, head_dim, causal=False)
        kept, m.mask = m.mask, None
        mixed = attend(m, query, key, value, shape)
        m.mask = kept
        return out(m, mixed)

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        return down(m, ops.mul(m, parts.activation(m, gate(m, x), act), up(m, x)))

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        x = before(m, x)
        x = attention(m, x)
        x = after(m, x)
        x = residual = ops.add(m, residual, x)
        x = before_mlp(m, x)
        x = feed_forward(m, x)
        x = after_mlp(m, x)
        return ops.add(m, residual, x)

    return block


def audio_weights(b: Builder, config: Mapping[str, Any]) -> int:
    """The parameters of the audio tower, which runs on audio only; returns the width of its features."""
    hidden = int(config.get("hidden_size") or 1024)
    first, second = config.get("subsampling_conv_channels") or (128, 32)
    heads = int(config.get("num_attention_heads") or 8)
    for channels, before in ((int(first), 1), (int(second), int(first))):
        b.parameter("conv", "conv", (channels, before * 9))
        b.norm("norm", channels)
    b.linear("input_proj_linear", int(first) // 4 * int(second), hidden)
    for _ in range(int(config.get("num_hidden_layers") or 12)):
        for fin, fout in ((hidden, 4 * hidden), (4 * hidden, hidden)) * 2:
            b.linear("linear", fin, fout)
        for _ in range(4):
            b.linear("linear", hidden, hidden)
        b.linear("relative_k_proj", hidden, hidden)
        b.vector("per_dim_scale", hidden // heads, "scale")
        b.linear("linear", hidden, 2 * hidden)
        b.linear("linear", hidden, hidden)
        b.parameter("depthwise_conv1d", "conv", (hidden, int(config.get("conv_kernel_size") or 5)))
        for _ in range(9):
            b.norm("norm", hidden)
    out = int(config.get("output_proj_dims") or 1536)
    b.linear("output_proj", hidden, out, bias=True)
    return out
