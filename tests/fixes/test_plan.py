"""The plan: every proposal is estimated again here, and what must be in it follows from bytes a parameter."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from memlint.assess import DOES_NOT_FIT, FITS, TIGHT, Assessment, assess
from memlint.facts import TrainingRun, fixed
from memlint.fixes import Proposal, plan
from memlint.fixes.steps import steps_for
from memlint.gpus import find
from memlint.rules.finding import Safety
from memlint.source import Span

FULL: dict[str, Any] = {
    "model.id": "Qwen/Qwen2.5-0.5B",
    "model.dtype": "float32",
    "model.attention": "sdpa",
    "precision": "bf16-mixed",
    "adapter.method": "none",
    "batch.micro_batch_size": 16,
    "batch.gradient_accumulation_steps": 2,
    "batch.sequence_length": 2048,
    "optimizer.name": "adamw_torch_fused",
    "checkpointing.enabled": False,
    "loss.logits": "full",
    "objective": "causal_lm",
    "framework.name": "transformers",
}


def assessed(gpu: str | None, **changes: Any) -> Assessment:
    facts = {**FULL, **{key.replace("__", "."): value for key, value in changes.items()}}
    run = TrainingRun("x.py", Span("x.py", 1), {key: fixed(value) for key, value in facts.items()}, "hf_arguments")
    return assess(run, find(gpu) if gpu else None)


def again(assessment: Assessment, proposal: Proposal) -> Assessment:
    return assess(assessment.run.with_values(proposal.changes, "proposed"), assessment.gpu)


def test_every_proposal_makes_it_fit() -> None:
    assessment = assessed("rtx-4090")
    assert assessment.verdict == DOES_NOT_FIT
    proposals = plan(assessment)
    assert proposals
    for proposal in proposals:
        after = again(assessment, proposal)
        assert after.verdict == proposal.verdict_after == FITS
        assert after.estimate is not None
        assert after.estimate.device.expected == proposal.device_bytes_after


def test_no_proposal_does_more_than_needed() -> None:
    """Leaving out any of the changed facts but one of a pair that belongs together no longer fits."""
    assessment = assessed("rtx-4090")
    groups = {step.title: step for step in steps_for(assessment)}
    for proposal in plan(assessment):
        steps = [step for step in groups.values() if set(step.changes.items()) <= set(proposal.changes.items())]
        for left_out in steps:
            rest = {k: v for k, v in proposal.changes.items() if k not in left_out.changes}
            assert assess(assessment.run.with_values(rest, "less"), assessment.gpu).verdict != FITS


def test_the_effective_batch_is_kept() -> None:
    batches = [p.changes for p in plan(assessed("rtx-4090")) if "batch.micro_batch_size" in p.changes]
    assert batches
    assert all(c["batch.micro_batch_size"] * c["batch.gradient_accumulation_steps"] == 32 for c in batches)


def test_a_proposal_is_as_safe_as_its_least_safe_step() -> None:
    safety = {tuple(step.changes): step.safety for step in steps_for(assessed("rtx-4090"))}
    order = [Safety.SAFE, Safety.UNSAFE, Safety.SUGGEST]
    for proposal in plan(assessed("rtx-4090")):
        parts = [level for keys, level in safety.items() if set(keys) <= set(proposal.changes)]
        assert order.index(proposal.safety) <= max(map(order.index, parts))


def test_states_that_are_too_large_are_what_changes() -> None:
    """Llama-2-7B in fp32 with Adam: 6.738e9 x (4 + 4 + 8) = 107.8e9 bytes, more than an 80 GB card whatever the batch.

    Only fewer bytes a parameter help: other weights, other states, or fewer parameters in training.
    """
    assessment = assessed("a100-80gb", model__id="meta-llama/Llama-2-7b-hf", batch__micro_batch_size=1)
    proposals = plan(assessment)
    assert proposals
    for proposal in proposals:
        assert {"model.dtype", "optimizer.name", "adapter.method"} & set(proposal.changes)


def test_no_more_estimates_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["memlint.fixes.plan"]
    estimate_with, made = module.estimate_with, []
    monkeypatch.setattr(module, "estimate_with", lambda *args: made.append(1) or estimate_with(*args))
    plan(assessed("16GB", model__id="meta-llama/Llama-2-7b-hf"))
    assert 0 < len(made) <= 100
    made.clear()
    plan(assessed("rtx-4090"), budget=5)
    assert len(made) == 5


def test_nothing_to_plan() -> None:
    assert plan(assessed("h100", batch__micro_batch_size=1)) == ()
    assert plan(assessed(None)) == ()
    assert plan(assessed("rtx-4090", model__id="nobody/knows-this")) == ()


def test_where_nothing_fits_for_sure_it_may() -> None:
    """A proposal that does not fit for sure is only made when no other does."""
    for gpu in ("8GB", "12GB", "16GB", "24GB", "40GB"):
        verdicts = {proposal.verdict_after for proposal in plan(assessed(gpu))}
        assert verdicts in (set(), {FITS}, {TIGHT})


SOUND = {
    "checkpointing is on": ({"checkpointing__enabled": True}, {"checkpointing.enabled": True}, False),
    "checkpointing is off": ({}, {"checkpointing.enabled": True}, True),
    "GRPO: the batch counts generations": ({"objective": "grpo"}, {"batch.micro_batch_size": 8}, False),
    "optimizer in backward: no accumulation": ({"optimizer__in_backward": True}, {"batch.micro_batch_size": 8}, False),
    "ZeRO has its own Adam": ({"parallel__strategy": "zero2"}, {"optimizer.name": "adamw_bnb_8bit"}, False),
    "LoRA has few states": ({"adapter__method": "lora"}, {"optimizer.name": "adamw_bnb_8bit"}, False),
    "a frozen base in fp32": ({"adapter__method": "lora"}, {"model.dtype": "bfloat16"}, True),
    "a quantized base has no dtype": (
        {"adapter__method": "lora", "quantization__method": "bnb_4bit"},
        {"model.dtype": "bfloat16"},
        False,
    ),
    "one GPU shards nothing": ({}, {"parallel.strategy": "zero3"}, False),
    "two GPUs can shard": ({"parallel__gpus": 2, "parallel__strategy": "ddp"}, {"parallel.strategy": "zero3"}, True),
    "a fused loss is on": ({"loss__logits": "fused"}, {"loss.logits": "fused"}, False),
    "a classifier has no vocabulary": ({"objective": "sequence_classification"}, {"loss.logits": "fused"}, False),
}


@pytest.mark.parametrize(("facts", "changes", "offered"), SOUND.values(), ids=SOUND)
def test_which_steps_are_sound(facts: dict[str, Any], changes: dict[str, Any], offered: bool) -> None:
    steps = steps_for(assessed("rtx-4090", **facts))
    assert any(changes.items() <= dict(step.changes).items() for step in steps) is offered


def test_bfloat16_only_where_the_card_has_it() -> None:
    for gpu, dtype in (("t4", "float16"), ("rtx-4090", "bfloat16")):
        steps = steps_for(assessed(gpu, precision="fp32", adapter__method="lora"))
        assert {step.changes.get("model.dtype") for step in steps} == {None, dtype}
        assert any("precision" in step.changes for step in steps) is (gpu != "t4")
