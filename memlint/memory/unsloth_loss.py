"""Unsloth's fused loss: head and cross entropy in chunks as large as the card has room for.

Read in unsloth 2025.8 to 2026.8 (`models/llama.py`) with unsloth_zoo `fused_losses/cross_entropy_loss.py`: `UnslothFusedLoss` makes the
gradients in forward, chunk by chunk, under torch.compile.
"""

from __future__ import annotations

from memlint.gpus.gpu import Gpu
from memlint.memory.families.model import Model
from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.tensor import FP32, Grads, Storage, Tensor
from memlint.models.architecture import Architecture

MOST, LEAST = 4 << 30, 64 << 20
"""`_get_chunk_multiplier`: half of what is free on the card at the first loss, at most 4 GiB (6 July 2026; no limit before). Below that
nothing of use would be left."""


def budget(setup: Setup, architecture: Architecture, gpu: Gpu | None) -> int:
    """Bytes that the float32 logits of a chunk may have, on a card that holds the weights."""
    if gpu is None:
        return MOST
    bits = setup.bits if setup.quantization else 8 * setup.weight_itemsize
    free = gpu.capacity_bytes - gpu.context_bytes - (architecture.params or 0) * bits // 8
    return max(LEAST, min(MOST, free // 2))


def fused_loss(m: Machine, setup: Setup, model: Model, hidden: Tensor) -> Tensor:
    """The loss; hidden gradient and, where it is trained, the head's live from forward to backward. A chunk has its logits and their
    gradient in the head's dtype; the float32 between them is fused away."""
    head = model.head_linear
    assert head is not None
    rows, itemsize = hidden.numel // model.hidden, head.weight.itemsize
    share = rows * model.classes * FP32 / setup.loss_budget
    chunks = 1 if share <= 1 else -(-int(-(-share // 1)) // 4) * 4
    trained = head.weight.node is not None
    grad_hidden = Storage(m.ledger, hidden.numel * hidden.itemsize)
    grad_head = Storage(m.ledger, head.weight.numel * itemsize if trained else 0)
    piece = -(-rows // chunks)
    logits = m.new(piece * model.classes, itemsize)
    gradient = m.new(piece * model.classes, itemsize)
    part = m.new(piece * model.hidden, hidden.itemsize)
    if trained:
        m.transient(head.weight.numel, itemsize)
    del logits, gradient, part
    numel, back, weights = hidden.numel, hidden.itemsize, head.weight.numel

    def rule(g: Tensor) -> Grads:
        return m.new(numel, back), m.new(weights, itemsize) if trained else None

    return m.tape.record(m.new(1, FP32), (hidden, head.weight), rule, (grad_hidden, grad_head))
