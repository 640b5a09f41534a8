"""Attention of a rank that holds a part of every sequence (context or sequence parallelism).

`a2a`: all-to-all exchanges positions for heads, so that a rank has whole sequences of its part of the heads (DeepSpeed 0.19
`runtime/sequence_parallel/ulysses_sp.py`, verl's `ulysses.py`, ms-swift's `sequence_parallel/ulysses.py`). `gather`: keys and values of all
ranks are there during the layer (torch 2.13 `tensor/experimental/_context_parallel/_attention.py`, `_AllGatherRotater`; ring_flash_attn's
`llama3` variant). `ring`: those of the next rank arrive while one's own are used.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory.attention import Shape
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Grads, Storage, Tensor

Core = Callable[[Machine, Tensor, Tensor, Tensor, Shape], Tensor]
"""An attention kernel on whole sequences of some heads."""


def exchanged(m: Machine, q: Tensor, k: Tensor, v: Tensor, shape: Shape, core: Core) -> Tensor:
    """Self-attention over the sequences of all ranks, for this rank's positions."""
    ranks = m.context
    if m.exchange == "a2a":
        copies = max(1, ranks // shape.kv_heads)  # with fewer key heads than ranks each is sent to several
        heads, kv_heads = -(-shape.heads // ranks), max(1, shape.kv_heads // ranks)
        q, k, v = _moved(m, q, q.numel), _moved(m, k, k.numel * copies), _moved(m, v, v.numel * copies)
        whole = shape._replace(queries=shape.queries * ranks, keys=shape.keys * ranks, heads=heads, kv_heads=kv_heads)
        out = core(m, q, k, v, whole)
        del q, k, v
        return _moved(m, out, out.numel)
    visiting = (k.numel + v.numel) * (ranks if m.exchange == "gather" else 2)
    sizes, itemsize = (q.numel, k.numel, v.numel), k.itemsize
    held: list[Storage] = []

    def arrive(g: Tensor) -> Grads:
        """Backward sees the visiting keys and values again, and sums the three gradients in float32."""
        held.append(Storage(m.ledger, visiting * itemsize, "communication"))
        held.extend(Storage(m.ledger, size * FP32) for size in sizes)
        return (g,)

    def leave(g: Tensor) -> Grads:
        held.clear()
        return (g,)

    q = m.tape.record(Tensor(q.storage, q.numel, q.itemsize), (q,), leave)
    guests = [Storage(m.ledger, visiting * itemsize, "communication"), Storage(m.ledger, shape.out * FP32)]
    out = core(m, q, k, v, shape)
    del guests
    return m.tape.record(Tensor(out.storage, out.numel, out.itemsize), (out,), arrive)


def _moved(m: Machine, x: Tensor, numel: int) -> Tensor:
    """One all-to-all: a contiguous copy is sent, another arrives; the same on the way back."""
    sent = m.new(x.numel, x.itemsize)
    out = m.new(numel, x.itemsize)
    del sent
    back, itemsize = x.numel, x.itemsize

    def rule(g: Tensor) -> Grads:
        sent = m.new(g.numel, itemsize)
        arrived = m.new(back, itemsize)
        del sent
        return (arrived,)

    return m.tape.record(out, (x,), rule)
