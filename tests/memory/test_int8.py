"""LLM.int8: what bitsandbytes makes and keeps around a packed layer (0.49.1 `autograd/_functions.py`, `MatMul8bitLt`)."""

from __future__ import annotations

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.gpus import find
from memlint.memory.estimate import estimate
from memlint.models import lookup
from memlint.source import Span

TOKENS = 1024
KEPT = ("weights", "adapters", "gradients", "optimizer_states")


def per_layer(**facts: object) -> float:
    """Bytes per token that one more layer of Llama 7B (hidden 4096, feed-forward 11008) adds to the peak of forward, but what it keeps."""
    peaks = []
    for layers in (20, 10):
        run = {
            "model.id": "huggyllama/llama-7b", "model.dtype": "float16", "precision": "fp16-true", "quantization.method": "bnb_8bit",
            "adapter.method": "lora", "adapter.r": 8, "adapter.target_modules": ["q_proj", "v_proj"], "adapter.dtype": "float16",
            "batch.micro_batch_size": 1, "batch.sequence_length": TOKENS, "batch.gradient_accumulation_steps": 4,
            "optimizer.name": "adamw_torch", "checkpointing.enabled": True, "model.layers_override": layers, **facts,
        }  # fmt: skip
        found = lookup(str(run["model.id"]))
        assert found.architecture is not None
        known = TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in run.items()})
        forward = next(i for i in estimate(known, found.architecture, None).timeline if i.phase == "forward")
        peaks.append(forward.peak_bytes - sum(forward.components.get(kept, 0) for kept in KEPT))
    return (peaks[0] - peaks[1]) / 10 / TOKENS


def test_reentrant_checkpointing_has_no_graph_that_could_keep_inputs() -> None:
    assert per_layer(**{"checkpointing.use_reentrant": True}) == pytest.approx(2 * 4096, rel=0.01)


def test_non_reentrant_checkpointing_does_not_see_the_inputs_of_packed_layers() -> None:
    # `ctx.tensors` of the first forward pass: one input for q, k and v, one each for o, for gate and up, for down.
    assert per_layer(**{"checkpointing.use_reentrant": False}) == pytest.approx(2 * (4096 + 3 * 4096 + 11_008), rel=0.01)


@pytest.mark.parametrize(("version", "card", "copies"), [("0.39.0", "T4", 2), ("0.39.1", "T4", 0), ("0.39.0", "V100", 0)])
def test_a_state_dict_copies_the_weights_of_two_releases(version: str, card: str, copies: int) -> None:
    """bitsandbytes 0.38.1 and 0.39.0 `nn/modules.py`, `Linear8bitLt._save_to_state_dict`: `weight_clone` stays as `weight.data`, the state
    dict has what `undo_layout` makes, and `state.CxB` has what it had. Neither 0.37.2 nor 0.39.1 does so, nor a card without `igemmlt`."""
    run = {
        "model.dtype": "float16", "precision": "fp16-mixed", "quantization.method": "bnb_8bit", "adapter.method": "lora",
        "batch.micro_batch_size": 1, "batch.sequence_length": 512, "optimizer.name": "adamw_torch", "checkpointing.enabled": True,
        "framework.versions": {"bitsandbytes": version},
    }  # fmt: skip
    found = lookup("huggyllama/llama-7b")
    assert found.architecture is not None
    known = TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in run.items()})
    estimated = estimate(known, found.architecture, find(card))
    packed = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11_008)
    loaded = next(instant.peak_bytes for instant in estimated.timeline if instant.phase == "load")
    assert (estimated.required.high == loaded + 2 * packed) is bool(copies)
    assert any("save a checkpoint" in sentence for sentence in estimated.assumptions) is bool(copies)
