"""States of 8-bit optimizers (bitsandbytes 0.50 `optim/optimizer.py`): one byte, and a float32 for each 256; vectors stay 32-bit."""

from __future__ import annotations

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.estimate import estimate
from memlint.models import lookup
from memlint.source import Span

PARAMETERS, EMBEDDING, NORMS = 1_235_814_400, 128_256 * 2048, 33 * 2048
"""Llama 3.2 1B, whose head is its embedding: all weights, the embedding, and two norms for each of 16 layers and a last one."""
EIGHT_BIT = 2 * (1 + 4 / 256)
"""Bytes of Adam's two states."""


def states(**facts: object) -> int:
    """Bytes of optimizer states at the optimizer's step."""
    run = {
        "framework.name": "transformers", "model.dtype": "bfloat16", "precision": "bf16-true", "batch.micro_batch_size": 1,
        "batch.sequence_length": 128, "optimizer.name": "adamw_bnb_8bit", "checkpointing.enabled": True, **facts,
    }  # fmt: skip
    model = lookup("meta-llama/Llama-3.2-1B").architecture
    assert model is not None
    found = estimate(TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in run.items()}), model, None)
    step = next(instant for instant in found.timeline if instant.phase == "optimizer_step")
    return step.components["optimizer_states"]


def test_the_trainers_own_optimizer_leaves_embeddings_in_32_bits() -> None:
    """transformers 5.24 `trainer.py`, `create_optimizer`: `manager.register_module_override(module, "weight", {"optim_bits": 32})`."""
    wide = 8 * (EMBEDDING + NORMS)
    assert states() == pytest.approx((PARAMETERS - EMBEDDING - NORMS) * EIGHT_BIT + wide, rel=1e-4)


def test_an_optimizer_that_the_script_makes_has_8_bit_states_for_embeddings() -> None:
    """Nothing registers `nn.Embedding` there; bitsandbytes' own embedding classes, which register themselves, are not what models use."""
    assert states(**{"optimizer.wide_embeddings": False}) == pytest.approx((PARAMETERS - NORMS) * EIGHT_BIT + 8 * NORMS, rel=1e-4)
