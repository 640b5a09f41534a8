"""Gated delta networks: the linear attention of Qwen3-Next and Qwen3.5, and their gated full attention.

Read in transformers 5.24 `models/qwen3_5/modeling_qwen3_5.py` and `models/qwen3_next/modeling_qwen3_next.py`: the PyTorch code, which runs
unless fused kernels (`causal-conv1d`, `flash-linear-attention`: `memlint.memory.families.delta_kernels`) are installed.
"""

from __future__ import annotations

from memlint.memory import convolutions, ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import delta_kernels, parts
from memlint.memory.families.llama import Part, Rotary, norm_of
from memlint.memory.families.llama_styles import Style
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, Parameter, Tensor
from memlint.models.architecture import Architecture

CHUNK = 64
"""`chunk_size` of `torch_chunk_gated_delta_rule`."""

DELTA_KERNELS = "gated_delta"
"""What these kernels are called among a run's `kernels`."""

SCANNED = 8
"""Steps that the scan over chunks is simulated with; each then stands for several chunks."""


def hybrid_attention(b: Builder, a: Architecture, style: Style, rotary: Rotary, index: int) -> Part:
    """The mixer of one layer, as `layer_types` says."""
    kinds = a.config.get("layer_types") or ()
    every = int(a.config.get("full_attention_interval") or 4)
    full = kinds[index] == "full_attention" if index < len(kinds) else (index + 1) % every == 0
    return gated_attention(b, a, style, rotary, index) if full else delta_net(b, a, style, rotary, index)


def gated_attention(b: Builder, a: Architecture, style: Style, rotary: Rotary, index: int) -> Part:
    """Attention whose result is multiplied by a sigmoid gate that the query projection makes as well."""
    b.parent = "attn"
    hidden, heads, head_dim = a.hidden_size or 0, a.heads or 1, rotary.head_dim
    kv_heads = a.kv_heads or heads
    bias = bool(a.config.get("attention_bias"))
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    q_proj, k_proj = b.linear("q_proj", hidden, 2 * q_width, bias), b.linear("k_proj", hidden, kv_width, bias)
    v_proj, out = b.linear("v_proj", hidden, kv_width, bias), b.linear("o_proj", q_width, hidden, bias)
    q_norm, k_norm = norm_of(b, style, "q_norm", head_dim), norm_of(b, style, "k_norm", head_dim)
    dropout = float(a.dropouts.get("attention_dropout", 0.0))

    def attention(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        q, gate = ops.split(m, apply(m, q_proj, x), (rows * q_width, rows * q_width))
        gate = ops.copy(m, gate)
        q = q_norm(m, q)
        k = k_norm(m, apply(m, k_proj, x))
        v = apply(m, v_proj, x)
        q, k = parts.rope(m, q, k, rotary.tables[-1], rotary.share)
        shape = Shape(m.batch, m.sequence, m.sequence, heads, kv_heads, head_dim, head_dim, dropout, head_major=True)
        mixed = attend(m, q, k, v, shape)
        return apply(m, out, ops.mul(m, mixed, ops.unary(m, gate, keeps="output")))

    return attention


def delta_net(b: Builder, a: Architecture, style: Style, rotary: Rotary, index: int) -> Part:
    """`GatedDeltaNet`: projections, a short convolution over time, the gated delta rule, a gated norm."""
    b.parent = "attn"
    config, hidden = a.config, a.hidden_size or 0
    k_heads, v_heads = int(config.get("linear_num_key_heads") or 16), int(config.get("linear_num_value_heads") or 32)
    k_dim, v_dim = int(config.get("linear_key_head_dim") or 128), int(config.get("linear_value_head_dim") or 128)
    kernel = int(config.get("linear_conv_kernel_dim") or 4)
    keys, values = k_heads * k_dim, v_heads * v_dim
    fused = a.model_type.startswith("qwen3_next")
    conv = b.parameter("conv1d", "conv", (2 * keys + values, kernel))
    if fused:
        projections = [b.linear("in_proj_qkvz", hidden, 2 * keys + 2 * values), b.linear("in_proj_ba", hidden, 2 * v_heads)]
    dt_bias, a_log = b.vector("dt_bias", v_heads), b.vector("A_log", v_heads)
    norm = b.norm("norm", v_dim)
    out = b.linear("out_proj", values, hidden)
    if not fused:
        names = (("in_proj_qkv", 2 * keys + values), ("in_proj_z", values), ("in_proj_b", v_heads), ("in_proj_a", v_heads))
        projections = [b.linear(name, hidden, width) for name, width in names]

    def mixer(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        if m.mask is not None:
            x = without_padding(m, x)
        if fused:
            qkv, z = ops.split(m, apply(m, projections[0], x), (rows * (2 * keys + values), rows * values))
            beta, a_states = ops.split(m, apply(m, projections[1], x), (rows * v_heads, rows * v_heads))
            z, beta, a_states = ops.copy(m, z), ops.copy(m, beta), ops.copy(m, a_states)
            qkv = ops.copy(m, qkv)
        else:
            qkv, z, beta, a_states = (apply(m, projection, x) for projection in projections)
        fast = DELTA_KERNELS in m.kernels
        if fast:
            qkv = delta_kernels.convolution(m, qkv, conv)
        else:
            dtype = qkv.itemsize
            qkv = ops.cast(m, qkv, conv.itemsize)
            convolved = convolutions.depthwise_conv(m, qkv, conv, m.batch * (m.sequence + kernel - 1) * (2 * keys + values))
            qkv = ops.narrow(m, convolved, rows * (2 * keys + values))
            del convolved
            qkv = ops.cast(m, ops.unary(m, qkv), dtype)
        q, k, v = ops.split(m, qkv, (rows * keys, rows * keys, rows * values))
        del qkv
        beta = ops.unary(m, beta, keeps="output")
        decay = decay_of(m, a_log, dt_bias, a_states)
        del a_states
        if fast:
            if k_heads != v_heads:
                q, k = (ops.spread(m, x, x.numel // k_heads * v_heads) for x in (q, k))
            core = delta_kernels.delta_rule(m, [q, k, v], decay, beta, v_heads, k_dim, v_dim)
            return apply(m, out, delta_kernels.gated_norm(m, core, z, norm, v_dim))
        core = delta_rule(m, [q, k, v], decay, beta, k_heads, v_heads, k_dim, v_dim)
        core = gated_norm(m, core, z, norm, v_dim)
        return apply(m, out, core)

    return mixer


def without_padding(m: Machine, x: Tensor) -> Tensor:
    """`hidden_states * attention_mask[:, :, None]`: an integer mask."""
    out = m.new(x.numel, x.itemsize)
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),))


def decay_of(m: Machine, a_log: Parameter, dt_bias: Parameter, x: Tensor) -> Tensor:
    """`-A_log.float().exp() * softplus(a.float() + dt_bias)`."""
    rate = ops.scale(m, ops.unary(m, ops.cast(m, a_log, FP32), keeps="output"))
    return ops.mul(m, rate, ops.unary(m, ops.add(m, ops.cast(m, x, FP32), dt_bias)))


def gated_norm(m: Machine, x: Tensor, gate: Tensor, weight: Parameter, width: int) -> Tensor:
    """`RMSNormGated`."""
    dtype = x.itemsize
    x = ops.cast(m, x, FP32)
    x = ops.mul(m, x, ops.rms_statistics(m, x, width))
    x = ops.mul(m, weight, ops.cast(m, x, dtype))
    x = ops.mul(m, x, ops.unary(m, ops.cast(m, gate, FP32)))
    return ops.cast(m, x, dtype)


def _l2_norm(m: Machine, x: Tensor, width: int) -> Tensor:
    """`x * rsqrt((x * x).sum(-1) + eps)`."""
    total = ops.sum_last(m, ops.mul(m, x, x), x.numel // width)
    return ops.mul(m, x, ops.small(m, ops.shift(m, total)))


def delta_rule(
    m: Machine, qkv: list[Tensor], decay: Tensor, beta: Tensor, k_heads: int, v_heads: int, k_dim: int, v_dim: int
) -> Tensor:
    """`torch_chunk_gated_delta_rule`; all of it in float32. Takes q, k and v out of their list."""
    v, k, q = qkv.pop(), qkv.pop(), qkv.pop()
    dtype, batch, sequence = q.itemsize, m.batch, m.sequence
    if k_heads != v_heads:
        q, k = (ops.spread(m, x, x.numel // k_heads * v_heads) for x in (q, k))
    q, k, v, beta, decay = (ops.cast(m, x, FP32) for x in (q, k, v, beta, decay))
    q, k = _l2_norm(m, q, k_dim), _l2_norm(m, k, k_dim)
    q = ops.scale(m, q)
    chunks = -(-sequence // CHUNK)
    rows = batch * v_heads * chunks * CHUNK
    q, k, v = ops.pad(m, q, rows * k_dim), ops.pad(m, k, rows * k_dim), ops.pad(m, v, rows * v_dim)
    beta, decay = ops.pad(m, beta, rows), ops.pad(m, decay, rows)
    v_beta, k_beta = ops.mul(m, v, beta), ops.mul(m, k, beta)
    upper = m.new(CHUNK * CHUNK, BYTE)
    total = ops.shift(m, decay)
    square = rows * CHUNK
    pairwise = _outer_difference(m, total, square)
    pairwise = ops.unary(m, ops.masked_fill(m, pairwise, upper), keeps="output")
    system = ops.mul(m, ops.matmul(m, k_beta, k, square), pairwise)
    within = ops.mul(m, ops.matmul(m, q, k, square), pairwise)
    decayed = ops.mul(m, k_beta, ops.unary(m, total, keeps="output"))
    new_values, k_decayed = _solved(m, system, v_beta), _solved(m, system, decayed)
    state = m.new(batch * v_heads * k_dim * v_dim, FP32)
    core = m.new(rows * v_dim, FP32)
    q = ops.mul(m, q, ops.unary(m, total, keeps="output"))
    k = ops.mul(m, k, ops.unary(m, ops.subtract(m, ops.narrow(m, total, rows), total), keeps="output"))
    last = ops.unary(m, ops.narrow(m, total, rows // CHUNK), keeps="output")
    steps = min(chunks, SCANNED)
    states = state.numel * chunks // steps
    part = rows // steps
    for _ in range(steps):
        read = ops.matmul(m, ops.narrow(m, k_decayed, part * k_dim), state, part * v_dim)
        new = ops.subtract(m, ops.narrow(m, new_values, part * v_dim), read)
        before = ops.matmul(m, ops.narrow(m, q, part * k_dim), state, part * v_dim)
        inside = ops.add(m, before, ops.matmul(m, ops.narrow(m, within, part * CHUNK), new, part * v_dim))
        core = _written(m, core, inside)
        update = ops.matmul(m, ops.narrow(m, k, part * k_dim), new, states)
        state = ops.add(m, ops.mul(m, Tensor(state.storage, states, FP32, state.node, state.index), last), update)
        del read, new, before, inside, update
    del state, q, k, v, within, system, pairwise, new_values, k_decayed, decayed, v_beta, k_beta, total, beta, decay, last, upper
    core = Tensor(core.storage, batch * sequence * v_heads * v_dim, FP32, core.node, core.index)
    return ops.cast(m, core, dtype) if dtype != FP32 else core


def _outer_difference(m: Machine, x: Tensor, numel: int) -> Tensor:
    """`x[..., :, None] - x[..., None, :]`."""
    out = m.new(numel, x.itemsize)
    few, itemsize = x.numel, x.itemsize

    def rule(g: Tensor) -> tuple[Tensor | None, ...]:
        negated = m.new(numel, itemsize)
        del negated
        return (m.new(few, itemsize),)

    return m.tape.record(out, (x,), rule)


def _solved(m: Machine, system: Tensor, right: Tensor) -> Tensor:
    """`torch.linalg.solve_triangular`: keeps the system and the solution; backward solves again, multiplies, negates, and takes the
    triangle (torch 2.13 `FunctionsManual.cpp`, `linalg_solve_triangular_backward`)."""
    out = m.new(right.numel, FP32)
    ns, nr = system.numel, right.numel

    def rule(g: Tensor) -> tuple[Tensor | None, ...]:
        grad = m.new(nr, FP32)
        product = m.new(ns, FP32)
        negated = m.new(ns, FP32)
        del product
        triangle = m.new(ns, FP32)
        del negated
        return triangle, grad

    return m.tape.record(out, (system, right), rule, (system.storage, out.storage))


def _written(m: Machine, into: Tensor, piece: Tensor) -> Tensor:
    """`into[:, :, i] = piece` (`CopySlices`): backward copies the whole gradient."""
    numel, few = into.numel, piece.numel
    out = Tensor(into.storage, numel, FP32, into.node, into.index)
    return m.tape.record(out, (into, piece), lambda g: (m.new(numel, FP32), m.new(few, FP32)))
