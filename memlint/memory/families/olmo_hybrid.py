"""OLMo Hybrid: gated delta networks with projections of their own in Llama's blocks, and every few layers a block of OLMo 3.

Read in transformers 5.24 `models/olmo_hybrid/modeling_olmo_hybrid.py`: the PyTorch code, which runs unless fused kernels are installed.
"""

from __future__ import annotations

from memlint.memory import convolutions, ops
from memlint.memory.build import Builder
from memlint.memory.families.linear_attention import decay_of, delta_rule, gated_norm, without_padding
from memlint.memory.families.llama import Part, Rotary, attention_of, block_of, decoder, mlp_of
from memlint.memory.families.llama_styles import STYLES, Style
from memlint.memory.families.model import Block, Model
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor
from memlint.models.architecture import Architecture

LINEAR = Style(norm="rms_promoted")


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The whole decoder with `layers` blocks."""
    kinds = a.config.get("layer_types") or ()
    style = STYLES["olmo3"]._replace(rotates=a.config.get("rope_parameters", {}) is not None)

    def block(index: int, rotary: Rotary) -> Block:
        if index < len(kinds) and kinds[index] == "linear_attention":
            return block_of(b, a, LINEAR, index, _delta_net(b, a), mlp_of)
        return block_of(b, a, style, index, attention_of(b, a, style, rotary, index), mlp_of)

    return decoder(b, a, layers, style, block=block)


def _delta_net(b: Builder, a: Architecture) -> Part:
    """`OlmoHybridGatedDeltaNet`."""
    b.parent = "attn"
    config, hidden = a.config, a.hidden_size or 0
    k_heads, v_heads = (int(config.get(f"linear_num_{side}_heads") or a.heads or 1) for side in ("key", "value"))
    k_dim = int(config.get("linear_key_head_dim") or 0.75 * hidden / k_heads)
    v_dim, kernel = int(config.get("linear_value_head_dim") or 2 * k_dim), int(config.get("linear_conv_kernel_dim") or 4)
    keys, values = k_heads * k_dim, v_heads * v_dim
    qkv = [b.linear(name, hidden, width) for name, width in (("q_proj", keys), ("k_proj", keys), ("v_proj", values))]
    a_proj, b_proj = b.linear("a_proj", hidden, v_heads), b.linear("b_proj", hidden, v_heads)
    g_proj, out = b.linear("g_proj", hidden, values), b.linear("o_proj", values, hidden)
    conv = b.parameter("conv1d", "conv", (2 * keys + values, kernel))
    dt_bias, a_log = b.vector("dt_bias", v_heads), b.vector("A_log", v_heads)
    norm = b.norm("o_norm", v_dim)
    doubled = bool(config.get("linear_allow_neg_eigval", True))

    def mixer(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        if m.mask is not None:
            x = without_padding(m, x)
        mixed = ops.concat(m, tuple(apply(m, projection, x) for projection in qkv))
        dtype = mixed.itemsize
        mixed = ops.cast(m, mixed, conv.itemsize)
        mixed = convolutions.depthwise_conv(m, mixed, conv, m.batch * (m.sequence + kernel - 1) * (2 * keys + values))
        mixed = ops.cast(m, ops.unary(m, ops.narrow(m, mixed, rows * (2 * keys + values))), dtype)
        mixed = ops.narrow(m, mixed, mixed.numel)
        q, k, v = ops.split(m, mixed, (rows * keys, rows * keys, rows * values))
        del mixed
        beta = ops.unary(m, apply(m, b_proj, x), keeps="output")
        beta = ops.scale(m, beta) if doubled else beta
        decay = decay_of(m, a_log, dt_bias, apply(m, a_proj, x))
        core = delta_rule(m, [q, k, v], decay, beta, k_heads, v_heads, k_dim, v_dim)
        return apply(m, out, gated_norm(m, core, apply(m, g_proj, x), norm, v_dim))

    return mixer
