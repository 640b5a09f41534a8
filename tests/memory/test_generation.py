"""Rollouts by the trained model itself: the cache of keys and values, by hand from the models' configurations."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.dialects import trl
from memlint.facts import TrainingRun, fixed
from memlint.memory.estimate import estimate
from memlint.models import lookup
from memlint.source import Span
from memlint.versions import Pin, Versions

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
CACHED = 28 * 2 * 2 * 128 * 2
"""Bytes a token: 28 layers, keys and values of 2 heads with 128 elements, bfloat16 (its config.json)."""


def phases(**facts: Any) -> dict[str, int]:
    """The peak of each phase."""
    given = {
        "model.id": MODEL, "model.dtype": "bfloat16", "precision": "bf16-true", "objective": "grpo", "batch.micro_batch_size": 2,
        "batch.sequence_length": 2048, "batch.completion_length": 1536, "checkpointing.enabled": True, "optimizer.name": "adamw_torch",
        "adapter.method": "lora", "adapter.r": 8, "adapter.target_modules": ["q_proj"], "loss.logits": "fused", **facts,
    }  # fmt: skip
    architecture = lookup(MODEL).architecture
    assert architecture is not None
    run = TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in given.items()})
    return {instant.phase: instant.peak_bytes for instant in estimate(run, architecture).timeline}


def test_the_cache_of_all_sequences_is_held() -> None:
    """128 sequences more of 2048 tokens, each with its keys and values; and three float32 copies of 151,936 logits for each."""
    few, many = (phases(**{"generation.batch_size": count})["generation"] for count in (128, 256))
    one_more_layer = 29 / 28  # `torch.cat` makes one layer's cache anew while the old one is there
    assert many - few == pytest.approx(128 * (2048 * CACHED * one_more_layer + 3 * 4 * 151_936), rel=0.01)


def test_another_engine_generates_without_the_models_cache() -> None:
    assert "generation" not in phases(**{"generation.batch_size": 128, "generation.vllm": "server"})
    assert "generation" not in phases()


@pytest.mark.parametrize(
    ("version", "arguments", "sequences"),
    [
        ("1.16.0", {"gradient_accumulation_steps": 8}, 32),  # steps_per_generation takes the accumulation
        ("1.16.0", {"gradient_accumulation_steps": 8, "steps_per_generation": 2}, 8),
        ("0.17.0", {"gradient_accumulation_steps": 8}, 4),  # before 0.18: no such argument
    ],
)
def test_sequences_at_a_time(version: str, arguments: dict[str, int], sequences: int) -> None:
    native = {name: fixed(value) for name, value in {"per_device_train_batch_size": 4, **arguments}.items()}
    assert (
        trl.trl_arguments("GRPOConfig", native, Versions({"trl": Pin(version, "test")}))["generation.batch_size"].value
        == sequences
    )
