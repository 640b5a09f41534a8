"""Gemma 4's vision tower, and the weights of its audio tower (transformers 5.24 `models/gemma4/modeling_gemma4.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.gemma4 import norm_of
from memlint.memory.families.model import Block
from memlint.memory.families.vision import Tower
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Tensor
from memlint.typed import Any


def vision_tower(b: Builder, config: Mapping[str, Any], image_size: int) -> Tower:
    """Patches projected by a linear, axial positions, four norms a block."""
    hidden, patch = int(config.get("hidden_size") or 768), int(config.get("patch_size") or 16)
    pooled = int(config.get("pooling_kernel_size") or 3) ** 2
    patches = (image_size // patch) ** 2 if image_size else int(config.get("default_output_length") or 280) * pooled
    project = b.linear("input_proj", 3 * patch * patch, hidden)
    places = b.parameter(
        "position_embedding_table", "embedding", (2 * int(config.get("position_embedding_size") or 10240), hidden)
    )
    tower = Tower(hidden, lambda m: m.new(0, 2), [], lambda m, x: x, 1, patches)
    for _ in range(int(config.get("num_hidden_layers") or 16)):
        tower.blocks.append(_block(b, config, tower))
    head_dim = int(config.get("head_dim") or 64)

    def embed(m: Machine) -> Tensor:
        tower.pixels = m.new(tower.rows * 3 * patch * patch, b.setup.weight_itemsize)
        x = apply(m, project, tower.pixels)
        if m.input_grads and x.node is None:
            x = m.tape.leaf(x)
        tower.tables[:] = [(m.new(tower.rows * head_dim, FP32), m.new(tower.rows * head_dim, FP32))]
        return ops.add(m, x, ops.gather(m, places, m.new(2 * tower.rows, 8), tower.rows * hidden))

    tower.embed = embed
    return tower


def _block(b: Builder, config: Mapping[str, Any], tower: Tower) -> Block:
    hidden, heads = tower.hidden, int(config.get("num_attention_heads") or 12)
    head_dim, inner = int(config.get("head_dim") or 64), int(config.get("intermediate_size") or 3072)
    act = str(config.get("hidden_activation") or "gelu_pytorch_tanh")
    b.parent = "attn"
    q, k, v = (b.linear("linear", hidden, heads * head_dim) for _ in range(3))
    out = b.linear("linear", heads * head_dim, hidden)
    q_norm, k_norm, v_norm = norm_of(b, "q_norm", head_dim), norm_of(b, "k_norm", head_dim), norm_of(b, "v_norm", head_dim, False)
    b.parent = "mlp"
    gate, up, down = b.linear("linear", hidden, inner), b.linear("linear", hidden, inner), b.linear("linear", inner, hidden)
    names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    before, after, before_mlp, after_mlp = (norm_of(b, name, hidden) for name in names)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        normed = before(m, x)
        cos, sin = tower.tables[-1]
        query = parts.rotate(m, q_norm(m, apply(m, q, normed)), cos, sin)
        key = parts.rotate(m, k_norm(m, apply(m, k, normed)), cos, sin)
        value = v_norm(m, apply(m, v, normed))
        shape = Shape(tower.images, tower.patches, tower.patches, heads, heads, head_dim, head_dim, causal=False)
        kept, m.mask = m.mask, None
        mixed = attend(m, query, key, value, shape)
        m.mask = kept
        del query, key, value, normed, kept
        x = ops.add(m, x, after(m, apply(m, out, mixed)))
        return ops.add(m, x, after_mlp(m, parts.gated_mlp(m, before_mlp(m, x), gate, up, down, act)))

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
