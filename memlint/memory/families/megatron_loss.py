"""Megatron-Core's cross entropy over a divided vocabulary.

Read in Megatron-LM 0.12 to 0.15 (`core/tensor_parallel/cross_entropy.py`, `core/fusions/fused_cross_entropy.py`): logits are copied to
float32, in which the softmax is made in place and kept.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Grads, Tensor


def over_logits(head: Callable[[Machine, Tensor], Tensor], classes: int, fused: bool) -> Callable[[Machine, Tensor], Tensor]:
    """Hidden states -> the loss of every position. The fused kernels are compiled: in backward the correct class is subtracted
    out of place (inductor of torch 2.13 allocates a float32 buffer for the scatter), then the gradient is cast."""

    def loss(m: Machine, hidden: Tensor) -> Tensor:
        logits = head(m, hidden)
        numel, itemsize = logits.numel, logits.itemsize
        softmax = m.new(numel, FP32) if itemsize != FP32 else logits

        def rule(g: Tensor) -> Grads:
            scattered = m.new(numel, FP32) if fused else None
            grad = m.new(numel, itemsize)
            del scattered
            return (grad,)

        return m.tape.record(m.new(numel // max(1, classes), FP32), (logits,), rule, (softmax.storage,))

    return loss
