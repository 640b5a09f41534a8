"""The verdict and what is searched for with it: on hand-made estimates where the contract is at stake, on real ones elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlint.assess import (
    DOES_NOT_FIT,
    FITS,
    TIGHT,
    UNKNOWN,
    Assessment,
    assess,
    judge,
    largest_micro_batch,
    largest_sequence,
    overridden,
    smallest_card,
    target,
    verdict_with,
    verdicts_for,
)
from memlint.config import Settings
from memlint.extract import extract
from memlint.facts import Fact, TrainingRun, choices, default, fixed, unknown
from memlint.gpus import Gpu, all_gpus, find
from memlint.memory import Estimate, Interval
from memlint.project import Project
from memlint.source import Span

GIB = 2**30


def card(name: str = "a10g", **changes: Any) -> Gpu:
    gpu = find(name)
    assert gpu is not None
    return gpu._replace(**changes)


def estimate_of(low: int, high: int) -> Estimate:
    """An estimate whose required memory is this interval, in GiB."""
    required = Interval(low * GIB, (low + high) * GIB // 2, high * GIB)
    return Estimate(required, required, required, required, "backward", {"context": GIB}, (), 1, 1)


# A card with 24 GiB of which its context takes 1 to 2: required memory may have 22 for sure, 23 at best.
CARD = card(capacity_bytes=24 * GIB, context_low=GIB, context_bytes=GIB, context_high=2 * GIB)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (10, 20, FITS),
        (20, 22, FITS),  # 22 + 2 = 24: exactly full
        (20, 23, TIGHT),
        (23, 40, TIGHT),  # 23 + 1 = 24: could just fit
        (24, 40, DOES_NOT_FIT),
        (30, 40, DOES_NOT_FIT),
    ],
)
def test_the_verdict_uses_the_end_that_makes_it_certain(low: int, high: int, verdict: str) -> None:
    assert judge(estimate_of(low, high), CARD) == verdict


def test_no_verdict_without_card_or_estimate() -> None:
    assert judge(None, CARD) == UNKNOWN
    assert judge(estimate_of(1, 2), None) == UNKNOWN


def test_needed_is_required_memory_and_context() -> None:
    assessment = Assessment(run_of(), estimate=estimate_of(10, 20), gpu=CARD)
    assert assessment.needed == Interval(11 * GIB, 16 * GIB, 22 * GIB)


def test_verdicts_for_many_cards_and_the_smallest_that_would_do() -> None:
    small = card("t4")
    assert [v.verdict for v in verdicts_for(estimate_of(18, 20), [small, card("a100-80gb")])] == [DOES_NOT_FIT, FITS]
    chosen = smallest_card(estimate_of(18, 20))
    assert chosen is not None and chosen.memory_gb == 24
    assert all(judge(estimate_of(18, 20), gpu) != FITS for gpu in all_gpus() if gpu.capacity_bytes < chosen.capacity_bytes)
    in_bfloat16 = smallest_card(estimate_of(10, 14), bf16=True)
    assert in_bfloat16 is not None and in_bfloat16.bf16
    assert smallest_card(estimate_of(10_000, 10_000)) is None


# Real estimates: LoRA on Qwen2.5-0.5B, known in every fact that matters.

FACTS: dict[str, Any] = {
    "model.id": "Qwen/Qwen2.5-0.5B",
    "model.dtype": "bfloat16",
    "model.attention": "sdpa",
    "quantization.method": "none",
    "adapter.method": "lora",
    "adapter.r": 8,
    "adapter.target_modules": "all-linear",
    "precision": "bf16-mixed",
    "batch.micro_batch_size": 4,
    "batch.gradient_accumulation_steps": 1,
    "batch.sequence_length": 1024,
    "optimizer.name": "adamw_torch_fused",
    "checkpointing.enabled": False,
    "loss.logits": "full",
    "objective": "causal_lm",
    "parallel.strategy": "none",
    "parallel.gpus": 1,
    "framework.name": "transformers",
}


def run_of(**facts: Any) -> TrainingRun:
    values = {**FACTS, **{key.replace("__", "."): value for key, value in facts.items()}}
    known = {key: value if isinstance(value, Fact) else fixed(value) for key, value in values.items()}
    return TrainingRun("train.py", Span("train.py", 1), known)


def test_an_assessment_is_complete() -> None:
    assessment = assess(run_of(), card())
    assert assessment.estimate is not None and assessment.architecture is not None
    assert assessment.architecture.vocab_size == 151_936
    assert assessment.verdict == FITS
    assert assessment.why_not == ""


def test_the_largest_micro_batch_is_the_last_that_fits() -> None:
    assessment = assess(run_of(), card())
    largest = largest_micro_batch(assessment)
    assert largest is not None and largest >= 4
    assert verdict_with(assessment, {"batch.micro_batch_size": largest}) == FITS
    assert verdict_with(assessment, {"batch.micro_batch_size": largest + 1}) != FITS


def test_the_longest_sequence_is_the_last_that_fits() -> None:
    assessment = assess(run_of(), card())
    longest = largest_sequence(assessment)
    assert longest is not None and longest >= 1024 and longest % 64 == 0
    assert verdict_with(assessment, {"batch.sequence_length": longest}) == FITS
    assert verdict_with(assessment, {"batch.sequence_length": longest + 64}) != FITS


def test_a_length_between_two_steps_that_fits_is_not_rounded_down() -> None:
    run = run_of(batch__sequence_length=1000)
    roomy = assess(run, card()).estimate
    assert roomy is not None
    sizes = range(roomy.required.high, roomy.required.high + 4 * GIB, 2**25)
    exact = next(found for size in sizes if (found := assess(run, card(capacity_bytes=size))).verdict == FITS)
    assert verdict_with(exact, {"batch.sequence_length": 1024}) != FITS
    assert largest_sequence(exact) == 1000


def test_nothing_fits_or_nothing_is_known() -> None:
    tiny = card(capacity_bytes=GIB)
    assert largest_micro_batch(assess(run_of(), tiny)) == 0
    assert largest_micro_batch(assess(run_of(), None)) is None
    assert largest_micro_batch(assess(run_of(batch__micro_batch_size=unknown("asked for on the command line")), card())) is None


def test_an_unknown_model_says_how_to_supply_it() -> None:
    assessment = assess(run_of(model__id="acme/no-such-model"), card())
    assert assessment.verdict == UNKNOWN and assessment.estimate is None
    assert "'acme/no-such-model' is not in the catalogue" in assessment.why_not
    assert "[tool.memlint.models]" in assessment.why_not
    missing = assess(run_of(model__id=unknown("it is read from the command line")), card())
    assert "it is read from the command line" in missing.why_not


def test_a_model_can_be_pointed_at_another(tmp_path: object) -> None:
    settings = Settings(models={"acme/no-such-model": "Qwen/Qwen2.5-0.5B"})
    assessment = assess(run_of(model__id="acme/no-such-model"), card(), settings)
    assert assessment.architecture is not None and assessment.architecture.vocab_size == 151_936


def test_values_that_people_set_win() -> None:
    settings = Settings(gpus=4, set={"batch.sequence_length": 512}, origins={"gpus": "--gpus"})
    run = assess(run_of(), card(), settings).run
    assert (run.value("parallel.gpus"), run.value("batch.sequence_length")) == (4, 512)
    assert run.fact("parallel.gpus").origin[0].note == "--gpus"


BY_CARD = choices(["bf16-mixed", "fp16-mixed"], decided_by="gpu.bf16")


@pytest.mark.parametrize(("name", "value"), [("a10g", "bf16-mixed"), ("t4", "fp16-mixed"), ("v100", "fp16-mixed")])
def test_the_card_decides_what_depends_on_bfloat16(name: str, value: str) -> None:
    assert assess(run_of(precision=BY_CARD), card(name)).run.value("precision") == value


def test_a_size_alone_decides_nothing_about_bfloat16() -> None:
    """16 GB cards come with (RTX 4060 Ti) and without (T4)."""
    assert assess(run_of(precision=BY_CARD), card("16GB")).run.value("precision") is None
    assert assess(run_of(precision=BY_CARD), None).run.value("precision") is None


@pytest.mark.parametrize(
    ("settings", "facts", "name"),
    [
        (Settings(gpu="t4"), {"hardware__gpu": "a10g"}, "Tesla T4"),
        (Settings(), {"hardware__gpu": "a10g"}, "NVIDIA A10G"),
        (Settings(), {"hardware__gpu": default("t4", "colab")}, "Tesla T4"),
        (Settings(), {"hardware__gpu": "a card nobody knows"}, None),
        (Settings(), {}, None),
    ],
)
def test_the_target_card(settings: Settings, facts: dict[str, Any], name: str | None) -> None:
    gpu = target(run_of(**facts), settings)
    assert (gpu.name if gpu else None) == name


# What a comment states, under a configuration file and under the command line


@pytest.mark.parametrize(("origin", "batch", "card"), [("pyproject.toml:3", 4, "T4"), ("--set", 16, "A10G")])
def test_a_comment_is_above_the_configuration_and_below_the_command_line(
    tmp_path: Path, origin: str, batch: int, card: str
) -> None:
    (tmp_path / "train.py").write_text(
        "# memlint: set batch.micro_batch_size=4\n# memlint: gpu=t4\n"
        "from trl import SFTConfig, SFTTrainer\nSFTTrainer('Qwen/Qwen2.5-0.5B', args=SFTConfig()).train()\n"
    )
    (run,) = extract(str(tmp_path / "train.py")).runs
    settings = Settings().with_options(origin, set={"batch.micro_batch_size": 16}).with_options(origin, gpu="a10g")
    gpu = target(run, settings)
    assert gpu is not None and card in gpu.name
    assert overridden(run, settings).value("batch.micro_batch_size") == batch


def test_a_card_too_small_for_the_shortest_samples_is_too_small(tmp_path: Path) -> None:
    """Nothing states the prompts' length, but float32 weights, gradients and two AdamW states of 7.62e9 parameters take 113 GiB."""
    (tmp_path / "train.py").write_text(
        "from trl import GRPOConfig, GRPOTrainer\n"
        'args = GRPOConfig("o", per_device_train_batch_size=8, max_completion_length=512, bf16=True)\n'
        'GRPOTrainer(model="Qwen/Qwen2.5-7B-Instruct", reward_funcs=score, args=args, train_dataset=1).train()\n'
    )
    (run,) = extract(str(tmp_path / "train.py"), Project(root=tmp_path)).runs
    small = assess(run, find("A100-80GB"))
    assert small.verdict == "does_not_fit" and small.estimate is not None
    assert small.estimate.required.expected > 4 * 4 * 7_615_616_512
    assert "batch.sequence_length" in small.estimate.assumptions[0]
    large = assess(run, find("H200"))
    assert (large.verdict, large.estimate) == ("unknown", None) and "batch.sequence_length" in large.why_not
