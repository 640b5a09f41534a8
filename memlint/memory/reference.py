"""The frozen second model of preference and policy optimisation: its weights, and its forward pass beside the policy's graph.

TRL 1.16 `trainer/dpo_trainer.py` (`concatenated_forward` of the policy, then `compute_ref_log_probs` without gradients) and
`trainer/utils.py` (`selective_log_softmax`: row by row for half logits). On Megatron-Core ms-swift scores a step's samples with the
reference first (1b184f296c `megatron/trainers/dpo_trainer.py`, `_replace_data_iterator`; `kto_trainer.py`, `forward_step`).
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory.families.model import Model
from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.tensor import Parameter, Storage, Tensor


def weights(m: Machine, setup: Setup, parameters: list[Parameter]) -> list[Storage]:
    """A second copy of the base weights; sharded where the policy's are."""
    held = []
    sharding = setup.sharding
    for parameter in parameters:
        if parameter.kind == "adapter":
            continue
        m.ledger.enter("load", parameter.layer)
        numel = sharding.share(parameter.numel) if sharding.shards_weights else parameter.numel
        held.append(Storage(m.ledger, 0 if sharding.offload_params else numel * parameter.itemsize, "weights"))
    return held


def scored(m: Machine, model: Model, forward: Callable[[], Tensor]) -> None:
    """The reference's forward pass: logits, and the log-probabilities of one row at a time."""
    enabled, m.tape.enabled = m.tape.enabled, False
    hidden = forward()
    m.ledger.enter("loss")
    if model.loss is not None:
        model.loss(m, hidden)  # a loss of every position, of which the log-probabilities are the negative
    elif model.head is not None:
        logits = model.head(m, hidden)
        m.transient(logits.numel // max(1, m.batch), logits.itemsize)
        del logits
    del hidden
    m.tape.enabled = enabled
