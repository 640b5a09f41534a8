"""Evaluation between training steps: a forward pass without gradients, at its own batch size, beside weights and optimizer states.

The HF Trainer evaluates with 8 samples per device unless told otherwise (transformers 5.24 `training_args.py`,
`per_device_eval_batch_size`), and needs the logits themselves: a fused loss applies to training only (Liger-Kernel 0.8
`transformers/model/llama.py`, `skip_logits = self.training`). Keys and values of all layers are part of the outputs before
transformers 5.0.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import cache, loss
from memlint.memory.families.model import Model
from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.tensor import Tensor

PREFIX = "evaluation_"
"""Prefix of the phases of an evaluation."""


def evaluate(m: Machine, setup: Setup, model: Model, forward: Callable[[], Tensor]) -> None:
    """One batch of evaluation; `forward` runs the model's stages."""
    ledger, training_batch = m.ledger, m.batch
    ledger.prefix, m.batch = PREFIX, setup.evaluation_batch
    m.tape.enabled, m.training, m.has_graph = False, False, False
    caches, m.caches = m.caches, setup.uses_cache and setup.stack.caches_in_evaluation
    hidden = forward()
    ledger.component = "logits"
    value = loss.compute(m, setup._replace(logits="full") if setup.logits == "fused" else setup, model, hidden)
    del hidden
    m.end_autocast()
    value.clear()
    cache.drop(m)
    m.caches = caches
    ledger.component = "activations"
    ledger.prefix, m.batch = "", training_batch
    m.tape.enabled, m.training, m.has_graph = True, True, True
    ledger.enter("optimizer_step")
