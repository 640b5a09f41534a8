"""Losses over log-probabilities of preferred and rejected samples, by hand from TRL's source."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.memory.result import Estimate
from tests.memory.test_sharding import FULL, estimated, peak

LOGITS = 2 * 2048 * 32000
"""Of both samples of a pair."""


def scored(**facts: Any) -> Estimate:
    pair = {"objective": "dpo", "reference_model": "none", "parallel.gpus": 1, "parallel.strategy": "none", "batch.packing": False,
            "batch.sequence_length": 2048, "model.attention": "flash_attention_2", "framework.name": "trl"}  # fmt: skip
    return estimated(FULL | pair | facts)


def test_log_probabilities_of_half_logits_are_half() -> None:
    """TRL 0.15 `selective_log_softmax`: `F.log_softmax(row_logits)` in the dtype of the logits. While it is made, logits and result are 2
    bytes each; a cross entropy copies the logits to float32 first, 2 + 4 + 4 bytes."""
    assert peak(scored(), "loss")["logits"] == pytest.approx(4 * LOGITS, rel=0.02)
    assert peak(scored(objective="causal_lm", **{"batch.micro_batch_size": 2}), "loss")["logits"] > 9 * LOGITS


def test_autocast_gives_float32_logits() -> None:
    """accelerate `convert_outputs_to_fp32`: under autocast the log-probabilities are float32."""
    mixed = scored(**{"precision": "bf16-mixed", "model.dtype": "float32"})
    assert peak(mixed, "loss")["logits"] > 7 * LOGITS
