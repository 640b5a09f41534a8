"""Multi-head latent attention (DeepSeek V2 and V3): low-rank keys and values, a rotated part beside a plain one.

Read in transformers 5.24 `models/<type>/modeling_<type>.py` of deepseek_v2, deepseek_v3, deepseek_v32, glm_moe_dsa and mistral4.
"""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.llama import Part, Rotary, norm_of
from memlint.memory.families.llama_styles import Style
from memlint.memory.families.sparse_attention import chooser_of
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Tensor
from memlint.models.architecture import Architecture


def rotary_of(a: Architecture) -> Rotary:
    """Tables over the rotated part of each head."""
    width = int(a.config.get("qk_rope_head_dim") or 64)
    return Rotary(width, width)


def latent_attention(b: Builder, a: Architecture, style: Style, rotary: Rotary, index: int) -> Part:
    """Queries (through a low rank if `q_lora_rank`), latent keys and values, attention, output projection."""
    b.parent = "attn"
    config, hidden, heads = a.config, a.hidden_size or 0, a.heads or 1
    rope, nope = rotary.width, int(config.get("qk_nope_head_dim") or 128)
    value, latent = int(config.get("v_head_dim") or 128), int(config.get("kv_lora_rank") or 512)
    rank = int(config.get("q_lora_rank") or 0)
    bias = bool(config.get("attention_bias"))
    head_dim = nope + rope
    q_in = b.linear("q_a_proj", hidden, rank, bias) if rank else None
    q_norm = norm_of(b, style, "q_a_layernorm", rank) if rank else None
    q_out = b.linear("q_b_proj" if rank else "q_proj", rank or hidden, heads * head_dim)
    kv_in = b.linear("kv_a_proj_with_mqa", hidden, latent + rope, bias)
    kv_norm = norm_of(b, style, "kv_a_layernorm", latent)
    kv_out = b.linear("kv_b_proj", latent, heads * (nope + value))
    out = b.linear("o_proj", heads * value, hidden, bias)
    choose = chooser_of(b, a, rotary, index, rank, _turn_interleaved)
    scales_query = a.model_type == "mistral4"
    turn = (
        turn_complex
        if a.model_type == "deepseek_v2"
        else _turn_interleaved
        if config.get("rope_interleave", True)
        else parts.rotate
    )

    def attention(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        residual = apply(m, q_in, x) if q_in is not None else x
        if q_norm is not None:
            residual = q_norm(m, residual)
        q = apply(m, q_out, residual)
        q_pass, q_rot = ops.split(m, q, (rows * heads * nope, rows * heads * rope))
        compressed = apply(m, kv_in, x)
        kv_pass, k_rot = ops.split(m, compressed, (rows * latent, rows * rope))
        k_pass = kv_norm(m, kv_pass)
        cos, sin = rotary.tables[-1]
        q_rot, k_rot = turn(m, q_rot, cos, sin), turn(m, k_rot, cos, sin)
        q = ops.concat(m, (q_pass, q_rot))
        if scales_query:
            q = ops.scale(m, q)
        kv = apply(m, kv_out, k_pass)
        k_nope, v = ops.split(m, kv, (rows * heads * nope, rows * heads * value))
        k = _joined(m, k_nope, k_rot, rows * heads * head_dim)
        shape = Shape(
            m.batch,
            m.sequence,
            m.sequence,
            heads,
            heads,
            head_dim,
            value,
            float(a.dropouts.get("attention_dropout", 0.0)),
            head_major=True,
        )
        mask, chosen = m.mask, (choose(m, x, residual) if choose is not None else ())
        if chosen:
            m.mask = chosen[0]
        mixed = attend(m, q, k, v, shape)
        m.mask = mask
        return apply(m, out, mixed)

    return attention


def _turn_interleaved(m: Machine, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`apply_rotary_pos_emb_interleave` on even and odd slices."""
    even, odd = ops.narrow(m, x, x.numel // 2), ops.narrow(m, x, x.numel // 2)
    first = ops.subtract(m, ops.mul(m, even, cos), ops.mul(m, odd, sin))
    second = ops.add(m, ops.mul(m, odd, cos), ops.mul(m, even, sin))
    return ops.concat(m, (first, second))


def turn_complex(m: Machine, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`apply_rotary_emb`: a product of complex numbers in float32."""
    dtype = x.itemsize
    wide = ops.cast(m, x, FP32)
    return ops.cast(m, ops.mul(m, wide, cos), dtype)


def _joined(m: Machine, nope: Tensor, rope: Tensor, numel: int) -> Tensor:
    """Keys written part by part into a new tensor (`copy_` into slices)."""
    out = m.new(numel, nope.itemsize)
    a, b, itemsize = nope.numel, rope.numel, nope.itemsize

    def rule(g: Tensor) -> tuple[Tensor | None, ...]:
        return m.new(a, itemsize), m.new(b, itemsize)

    return m.tape.record(out, (nope, rope), rule)
