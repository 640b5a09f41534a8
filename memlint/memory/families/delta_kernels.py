"""The kernels of flash-linear-attention and causal-conv1d for gated delta networks, where they are installed.

Read in fla-core 0.4.1: `ops/gated_delta_rule/chunk.py`, `ops/common/chunk_delta_h.py`, `modules/layernorm_gated.py`,
`modules/convolution.py`.
"""

from __future__ import annotations

from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Grads, Parameter, Storage, Tensor

CHUNK = 64


def convolution(m: Machine, x: Tensor, weight: Parameter) -> Tensor:
    """`causal_conv1d` with its activation: keeps its input, which it convolves again in backward."""
    numel, itemsize, weights, wsize = x.numel, x.itemsize, weight.numel, weight.itemsize
    trained = weight.node is not None

    def rule(g: Tensor) -> Grads:
        return m.new(numel, itemsize), m.new(weights, wsize) if trained else None

    return m.tape.record(m.new(numel, itemsize), (x, weight), rule, (x.storage,))


def gated_norm(m: Machine, x: Tensor, gate: Tensor, weight: Parameter, width: int) -> Tensor:
    """`FusedRMSNormGated`: keeps its two inputs and a statistic per row."""
    statistics = Storage(m.ledger, x.numel // width * FP32)
    numel, itemsize, size = x.numel, x.itemsize, gate.itemsize
    trained, weights, wsize = weight.node is not None, weight.numel, weight.itemsize

    def rule(g: Tensor) -> Grads:
        return m.new(numel, itemsize), m.new(numel, size), m.new(weights, wsize) if trained else None

    return m.tape.record(m.new(numel, itemsize), (x, gate, weight), rule, (x.storage, gate.storage, statistics))


def delta_rule(m: Machine, qkv: list[Tensor], decay: Tensor, beta: Tensor, heads: int, k_dim: int, v_dim: int) -> Tensor:
    """`chunk_gated_delta_rule` with normalised queries and keys: keeps these, the values, the running decay and one 64 x 64 matrix of
    each chunk; the states between chunks are made again in backward. Takes q, k and v out of their list."""
    q, k, v = qkv
    qkv.clear()
    size, rows = q.itemsize, m.tokens * heads
    states = m.batch * -(-m.sequence // CHUNK) * heads * k_dim * v_dim
    nq, nv = q.numel, v.numel
    normed = Storage(m.ledger, nq * size), Storage(m.ledger, nq * size)
    statistics = Storage(m.ledger, rows * FP32), Storage(m.ledger, rows * FP32)
    running = Storage(m.ledger, rows * FP32)
    wide = m.new(rows * CHUNK, FP32)
    system = Storage(m.ledger, rows * CHUNK * size)
    del wide
    parts = [m.new(numel, size) for numel in (nq, nv, states, nv)]  # w, u, h, new values
    out = m.new(nv, size)
    del parts
    few, beta_size, decay_size = beta.numel, beta.itemsize, decay.itemsize

    def rule(g: Tensor) -> Grads:
        held = [m.new(numel, size) for numel in (nq, nv, states, nv, nv, states, nv)]  # w, u, h, new values; dv, dh, dv
        dq, dk, dw = (m.new(nq, size) for _ in range(3))
        held += [dw, m.new(few, FP32), m.new(nq, size)]
        dv, ddecay = m.new(nv, size), m.new(few, FP32)
        held += [m.new(few, FP32)]
        held.clear()
        del dw
        dq = m.new(nq, size)  # back through the norms
        dk = m.new(nq, size)
        return dq, dk, dv, m.new(few, decay_size) if decay_size != FP32 else ddecay, m.new(few, beta_size)

    saved = (*normed, *statistics, v.storage, running, beta.storage, system)
    return m.tape.record(out, (q, k, v, decay, beta), rule, saved)
