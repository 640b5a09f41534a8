"""Rollouts that the trained model generates itself between steps: the prompts' forward pass, the cache of keys and values, the choice
of a token.

transformers 5.24 `cache_utils.py` (`DynamicLayer.update`: `torch.cat` makes each layer's keys and values anew for every token) and
`generation/utils.py` (`_sample`: the last position's logits as float32, processed copies, probabilities). TRL 1.16
`trainer/grpo_trainer.py` generates all sequences of `steps_per_generation` micro-batches at once, with weights and optimizer states on the
card and no gradients.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.tensor import FP32, Storage, Tensor
from memlint.models.architecture import Architecture

PREFIX = "generation_"
"""Prefix of the phases of a generation."""


def generate(m: Machine, setup: Setup, architecture: Architecture, forward: Callable[[], Tensor]) -> None:
    """One batch of rollouts at its full length; `forward` runs the model's stages."""
    ledger, training = m.ledger, (m.batch, m.sequence)
    ledger.prefix = PREFIX
    m.batch, m.sequence = setup.rollouts, max(1, setup.sequence - setup.completion)
    m.tape.enabled, m.training, m.has_graph = False, False, False
    hidden = forward()
    m.end_autocast()
    del hidden
    ledger.enter("forward")
    width = (
        2 * (architecture.kv_heads or architecture.heads or 0) * head_dim(architecture) * (m.autocast or setup.weight_itemsize)
    )
    layer = width * setup.rollouts * setup.sequence
    held = [Storage(ledger, layer * setup.depth), Storage(ledger, layer)]
    ledger.component = "logits"
    held += [Storage(ledger, setup.rollouts * setup.vocabulary * FP32) for _ in range(TOKEN_COPIES)]
    while held:
        held.pop()
    ledger.component = "activations"
    ledger.prefix, (m.batch, m.sequence) = "", training
    m.tape.enabled, m.training, m.has_graph = True, True, True
    ledger.enter("optimizer_step")


TOKEN_COPIES = 3
"""Of the last position's logits: raw, processed, and their probabilities (`_sample`)."""


def head_dim(architecture: Architecture) -> int:
    """Elements of one head's key."""
    return architecture.head_dim or (architecture.hidden_size or 0) // (architecture.heads or 1)
