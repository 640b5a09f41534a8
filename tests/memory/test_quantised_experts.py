"""Experts that are stacked in one parameter are no linears: bitsandbytes passes them by unless the framework packs them itself."""

from __future__ import annotations

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.estimate import estimate
from memlint.memory.result import Estimate
from memlint.models import lookup
from memlint.source import Span

GB = 10**9


def weights(**facts: object) -> int:
    """Weights on the card of Qwen3-30B-A3B under QLoRA at the peak of a step, in bytes."""
    return estimated(**facts).components["weights"]


def estimated(**facts: object) -> Estimate:
    """The estimate of that run."""
    run = {
        "model.id": "Qwen/Qwen3-30B-A3B", "model.dtype": "bfloat16", "precision": "bf16-mixed", "batch.micro_batch_size": 1,
        "batch.sequence_length": 512, "optimizer.name": "adamw_torch", "checkpointing.enabled": True, "adapter.method": "lora",
        "adapter.r": 8, "adapter.target_modules": ["q_proj"], "quantization.method": "bnb_4bit", "quantization.double_quant": True,
        **facts,
    }  # fmt: skip
    found = lookup(str(run["model.id"]))
    assert found.architecture is not None
    known = TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in run.items()})
    return estimate(known, found.architecture, None)


def test_experts_stay_in_16_bit_without_the_setting() -> None:
    # 48 layers x 128 experts x 3 x 2048 x 768 = 28.99e9 weights of two bytes.
    assert weights() > 2 * 28.99 * GB


def test_packed_experts_take_half_a_byte_and_their_statistics() -> None:
    # The experts at 0.5 + 1/64 + 4/(64*256) bytes each, 0.91e9 attention weights alike, 2 x 151,936 x 2,048 of two bytes.
    expected = (28.99 + 0.906) * GB * (0.5 + 1 / 64 + 4 / (64 * 256)) + 2 * 2 * 151_936 * 2_048
    assert abs(weights(**{"quantization.experts": True}) / expected - 1) < 0.005


def test_the_estimate_spans_both_ways_when_no_version_is_stated() -> None:
    """transformers 4.57 has one `nn.Linear` for each expert, which bitsandbytes packs: 28.99e9 weights of two bytes, or of 0.52."""
    packed, whole = (estimated(**{"framework.versions": {"transformers": v}}).allocated for v in ("4.57.6", "5.24.0"))
    spanned = estimated().allocated
    assert packed.high < 24 * GB < 2 * 28.99 * GB < whole.low
    assert (spanned.low, spanned.high) == (packed.low, whole.high)
    assert any("nothing states the version" in sentence for sentence in estimated().assumptions)


def test_packed_experts_of_llama_4() -> None:
    # Scout: 48 layers x 16 experts x 3 x 5120 x 8192 = 96.6e9 weights of its 109e9, a bias-free text part of 107.8e9 (its config.json).
    packed = weights(**{"model.id": "meta-llama/Llama-4-Scout-17B-16E", "quantization.experts": True})
    whole = weights(**{"model.id": "meta-llama/Llama-4-Scout-17B-16E", "framework.versions": {"transformers": "5.24.0"}})
    assert whole - packed == pytest.approx(96.6 * GB * (2 - 0.5 - 1 / 64 - 4 / (64 * 256)), rel=0.005)
