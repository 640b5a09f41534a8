"""Pipeline schedules: counts that torch's own plans give, and what each rank holds by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.estimate import estimate
from memlint.memory.pipeline import under_way
from memlint.memory.result import Estimate
from memlint.models import lookup
from memlint.source import Span

RECORD = json.loads((Path(__file__).parent / "data" / "pipeline_schedules.json").read_text())["rows"]
EXACT = {"GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "DualPipeV"}


@pytest.mark.parametrize(
    "row", RECORD, ids=lambda row: f"{row['schedule']}-{row['ranks']}x{row['chunks']}-{row['micro_batches']}"
)
def test_as_many_micro_batches_as_in_torchs_plan(row: dict[str, Any]) -> None:
    """On the first and the last rank; a ZBV pipeline with few micro-batches stays below its bound on the first."""
    ranks = row["ranks"]
    counts = [under_way(row["schedule"].lower(), ranks, row["chunks"], rank, row["micro_batches"]) for rank in (0, ranks - 1)]
    first, last = row["most"][0], row["most"][-1]
    if row["schedule"] in EXACT:
        assert counts == [first, last]
    else:
        assert counts[0] >= first
        assert counts[1] == last


STAGED = {
    "model.dtype": "float32", "precision": "bf16-mixed", "objective": "causal_lm", "batch.micro_batch_size": 8,
    "batch.sequence_length": 2048, "batch.packing": True, "checkpointing.enabled": True, "optimizer.name": "adamw_torch_fused",
    "framework.name": "torchtitan", "model.attention": "sdpa", "parallel.gpus": 4, "parallel.strategy": "fsdp2",
    "parallel.pipeline": 4, "parallel.pipeline_micro_batches": 8, "parallel.reshard_after_forward": False,
    "parallel.mp_param_dtype": "bfloat16", "parallel.mp_reduce_dtype": "float32",
}  # fmt: skip
LAYER = 4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
"""Weights of a Llama-3-8B layer (8 key heads of 128)."""
ROOT = 128256 * 4096
GIB = 1 << 30


def estimated(facts: dict[str, Any]) -> Estimate:
    run = TrainingRun("test", Span("test", 1), {key: fixed(value) for key, value in (STAGED | facts).items()})
    architecture = lookup("meta-llama/Llama-3.1-8B").architecture
    assert architecture is not None
    return estimate(run, architecture)


def test_a_stage_has_its_layers_and_one_of_the_tables() -> None:
    """Eight of 32 layers and the head with the final norm in float32; the whole model's parameters are reported."""
    found = estimated({})
    load = next(instant for instant in found.timeline if instant.phase == "load").components["weights"]
    assert load == pytest.approx(4 * (8 * LAYER + ROOT + 4096), rel=1e-3)
    assert found.parameters == 8_030_261_248


def test_gpipe_keeps_every_loss() -> None:
    """The last rank of GPipe has the float32 log-probabilities of all eight micro-batches, 1F1B's those of one."""
    logits = 2048 * 128256
    many = {"parallel.gpus": 8, "parallel.nodes": 4}
    gpipe, alternating = (estimated(many | {"parallel.pipeline_schedule": name}) for name in ("GPipe", "1F1B"))
    difference = gpipe.allocated.expected - alternating.allocated.expected
    assert 7 * 4 * logits <= difference <= 7 * (4 * logits + 9 * 2 * 2048 * 4096 + (64 << 20))


def test_the_worst_rank_is_named() -> None:
    """Eight data-parallel ranks share the states: activations decide, and the logits are on the last rank."""
    notes = estimated({"parallel.gpus": 8, "parallel.nodes": 4}).assumptions
    assert any(
        note.startswith("of 4 pipeline ranks the last needs the most: ") and "the head and the loss" in note for note in notes
    )
