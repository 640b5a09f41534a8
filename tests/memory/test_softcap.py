"""Gemma 2 caps its scores and its logits: where that is done decides what it costs."""

from __future__ import annotations

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.estimate import estimate
from memlint.models import lookup
from memlint.source import Span


def peaks(**facts: object) -> dict[str, int]:
    """The peak of each phase for Gemma 2 2B (8 heads, 256,000 words) on one row of 2048 tokens."""
    run = {
        "model.id": "google/gemma-2-2b", "model.dtype": "bfloat16", "precision": "bf16-true", "adapter.method": "lora",
        "adapter.r": 8, "adapter.target_modules": ["q_proj"], "batch.micro_batch_size": 1, "batch.sequence_length": 2048,
        "batch.packing": True, "optimizer.name": "adamw_torch", "checkpointing.enabled": False, **facts,
    }  # fmt: skip
    found = lookup(str(run["model.id"]))
    assert found.architecture is not None
    known = TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in run.items()})
    return {i.phase: i.peak_bytes for i in estimate(known, found.architecture, None).timeline}


@pytest.mark.parametrize(("attention", "scores"), [("eager", True), ("flash_attention_2", False)])
def test_flash_attention_caps_scores_in_its_kernel(attention: str, scores: bool) -> None:
    """flash-attn 2.6 takes `softcap` (transformers 5.24 `modeling_flash_attention_utils.py`): per token the same at every length."""
    short, long = (peaks(**{"model.attention": attention, "batch.sequence_length": n})["forward"] / n for n in (2048, 4096))
    weights = 5.23e9  # of 2.6e9 parameters in two bytes
    growth = long - short + weights / 2048 - weights / 4096
    one_copy = 26 * 8 * 2048 * 2  # 2048 more keys for each of 8 heads in 26 layers
    assert (growth > one_copy) == scores
    assert scores or abs(growth) < 0.05 * one_copy


def test_unsloths_kernel_caps_the_logits_and_keeps_them_once() -> None:
    """`/ cap`, `tanh` and `* cap` are three more tensors of 2 bytes a logit in transformers' code, of which tanh's result is kept."""
    facts = {"framework.name": "unsloth", "model.attention": "flash_attention_2", "framework.versions": {"unsloth": "2024.9"}}
    own = peaks(**facts, **{"loss.kernel": "unsloth_ce", "loss.logits": "full"})
    logits = 2048 * 256_000
    assert own["loss"] - own["forward"] == pytest.approx(2 * logits, rel=0.1)
