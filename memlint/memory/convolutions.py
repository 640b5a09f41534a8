"""Convolutions, as the operations of `memlint.memory.ops`."""

from __future__ import annotations

from memlint.memory.machine import Machine
from memlint.memory.ops import autocast
from memlint.memory.tensor import FP32, INT64, Grads, Parameter, Storage, Tensor


def depthwise_conv(m: Machine, x: Tensor, weight: Parameter, numel: int) -> Tensor:
    """`F.conv1d(x, weight, groups=channels)`: keeps x in any case; autocast casts both operands."""
    w = autocast(m, weight)
    x = autocast(m, x)
    out = m.new(numel, x.itemsize)
    need_x, need_w = x.node is not None, w.node is not None
    nx, nw, itemsize = x.numel, w.numel, x.itemsize

    def rule(g: Tensor) -> Grads:
        return m.new(nx, itemsize) if need_x else None, m.new(nw, itemsize) if need_w else None

    return m.tape.record(out, (x, w), rule, (x.storage, w.storage if w is not weight else None), kernel=True)


def convolution(m: Machine, x: Tensor, weight: Tensor, bias: Parameter | None, numel: int) -> Tensor:
    """`F.conv1d`/`conv2d`: keeps its input in any case; autocast casts all operands."""
    b = autocast(m, bias) if bias is not None else None
    w = autocast(m, weight)
    x = autocast(m, x)
    out = m.new(numel, max(x.itemsize, w.itemsize))
    need_x, need_w, need_b = x.node is not None, w.node is not None, b is not None and b.node is not None
    nx, nw, nb, itemsize = x.numel, w.numel, b.numel if b is not None else 0, x.itemsize

    def rule(g: Tensor) -> Grads:
        return (
            m.new(nx, itemsize) if need_x else None,
            m.new(nw, itemsize) if need_w else None,
            m.new(nb, itemsize) if need_b else None,
        )

    return m.tape.record(out, (x, w, b), rule, (x.storage, w.storage if not isinstance(w, Parameter) else None), kernel=True)


def weight_norm(m: Machine, direction: Tensor, lengths: Tensor) -> Tensor:
    """`torch._weight_norm(v, g)`: a weight of given direction and lengths; keeps the norms of the direction."""
    out = m.new(direction.numel, direction.itemsize)
    norms = Storage(m.ledger, lengths.numel * FP32)
    nv, ng, itemsize = direction.numel, lengths.numel, direction.itemsize
    return m.tape.record(out, (direction, lengths), lambda g: (m.new(nv, itemsize), m.new(ng, itemsize)), (norms,))


def batch_norm(m: Machine, x: Tensor, weight: Parameter, bias: Parameter, width: int) -> Tensor:
    """`F.batch_norm` in training: keeps its input and two float32 numbers for each channel; autocast leaves it in the input's dtype."""
    out = m.new(x.numel, x.itemsize)
    mean, scale = Storage(m.ledger, width * FP32), Storage(m.ledger, width * FP32)
    numel, itemsize, wsize = x.numel, x.itemsize, weight.itemsize
    need = tuple(t.node is not None for t in (x, weight, bias))

    def rule(g: Tensor) -> Grads:
        grad = m.new(numel, itemsize) if need[0] else None
        return grad, m.new(width, wsize) if need[1] else None, m.new(width, wsize) if need[2] else None

    return m.tape.record(out, (x, weight, bias), rule, (x.storage, mean, scale))


def max_pool(m: Machine, x: Tensor, numel: int) -> Tensor:
    """`F.max_pool2d`: keeps its input and where in it each maximum is."""
    out = m.new(numel, x.itemsize)
    places = Storage(m.ledger, numel * INT64)
    full, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(full, itemsize),), (x.storage, places))
