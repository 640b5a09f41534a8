"""Evaluation between training steps: what a forward pass without gradients holds."""

from __future__ import annotations

from memlint.facts import TrainingRun, fixed
from memlint.memory.estimate import estimate
from memlint.models import lookup
from memlint.source import Span


def peak(**facts: object) -> int:
    """Bytes at the peak of evaluating 8 samples of 1024 tokens with Llama 7B (32 layers, hidden 4096) under the Trainer."""
    run = {
        "framework.name": "transformers", "model.dtype": "float16", "precision": "fp16-true", "batch.micro_batch_size": 1,
        "batch.sequence_length": 1024, "adapter.method": "lora", "adapter.r": 8, "adapter.target_modules": ["q_proj", "v_proj"],
        "eval.enabled": True, "eval.batch_size": 8, "checkpointing.enabled": True, **facts,
    }  # fmt: skip
    model = lookup("huggyllama/llama-7b").architecture
    assert model is not None
    found = estimate(TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in run.items()}), model, None)
    return next(instant.peak_bytes for instant in found.timeline if instant.phase == "evaluation")


CACHE = 32 * 2 * 8 * 1024 * 4096 * 2
"""Keys and values of all layers in 16 bits."""


def test_keys_and_values_are_outputs_before_transformers_5() -> None:
    """4.x: `use_cache` is the configuration's, and checkpointing switches it off in training only (4.44 `modeling_llama.py`: `if
    self.gradient_checkpointing and self.training and use_cache`); 5.x: `self.model.config.use_cache = self.args.use_cache`, False."""
    without = peak(**{"framework.version": "5.24"})
    for version in ("4.36", "4.44", "4.57"):
        off = peak(**{"framework.version": version, "model.use_cache": False})
        assert abs(peak(**{"framework.version": version}) - off - CACHE) < 0.02 * CACHE
        assert abs(off - without) < 0.2 * CACHE
