"""What nothing states must not decide a verdict: `does not fit` holds for every length and every sharding that there may be."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.assess import DOES_NOT_FIT, FITS, UNKNOWN, Assessment, assess, target
from memlint.config import Settings
from memlint.facts import Fact, Origin, TrainingRun, fixed
from memlint.gpus import find
from memlint.source import Span

LORA: dict[str, Any] = {
    "framework.name": "transformers",
    "objective": "causal_lm",
    "model.id": "meta-llama/Llama-2-7b-hf",  # 6.74 billion parameters: 12.6 GiB in 16 bits; at most 4096 tokens
    "model.dtype": "bfloat16",
    "precision": "bf16-mixed",
    "adapter.method": "lora",
    "adapter.r": 8,
    "quantization.method": "none",
    "optimizer.name": "adamw_torch",
    "checkpointing.enabled": False,
    "batch.micro_batch_size": 8,
}
FULL: dict[str, Any] = {**LORA, "adapter.method": "none", "checkpointing.enabled": True, "batch.sequence_length": 512}


def judged(gpu: str, **facts: Any) -> Assessment:
    return assess(known(**facts), find(gpu))


def known(**facts: Any) -> TrainingRun:
    return TrainingRun("train.py", Span("train.py", 1), {name: fixed(value) for name, value in facts.items()})


@pytest.mark.parametrize(
    ("gpu", "verdict", "why"),
    [
        ("8gb", DOES_NOT_FIT, ""),  # 12.6 GiB of weights, whatever the texts are
        (
            "a100-80gb",
            UNKNOWN,
            "batch.sequence_length is not known, and it decides",
        ),  # 8 x 4096 tokens without checkpointing do not fit
    ],
)
def test_a_length_that_nothing_states(gpu: str, verdict: str, why: str) -> None:
    found = judged(gpu, **LORA)
    assert (found.verdict, found.why_not.partition(":")[0]) == (verdict, why)


def test_the_longest_text_fits() -> None:
    """One sample of 4096 tokens, of which checkpointing keeps 32 layers x 4096 x 4096 x 2 B = 1 GiB, beside 13 GiB of weights."""
    assert judged("a100-80gb", **{**LORA, "batch.micro_batch_size": 1, "checkpointing.enabled": True}).verdict == FITS


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({"parallel.strategy": "zero3"}, UNKNOWN),  # 16 B x 6.74e9 = 100 GiB, over one GPU or a thousand
        ({"parallel.strategy": "zero3", "parallel.gpus": 1}, DOES_NOT_FIT),
        ({"parallel.strategy": "none", "parallel.gpus": 1}, DOES_NOT_FIT),
        ({"framework.name": "torchtune"}, UNKNOWN),  # the recipe that `tune run` is given decides
        ({"framework.name": "torchtune", "parallel.gpus": 8}, UNKNOWN),
        ({"framework.name": "torchtune", "parallel.gpus": 1, "parallel.strategy": "none"}, DOES_NOT_FIT),
    ],
)
def test_a_sharding_that_nothing_states(facts: dict[str, Any], verdict: str) -> None:
    found = judged("a100-40gb", **{**FULL, "model.dtype": "float32", **facts})
    assert found.verdict == verdict
    assert ("how the job is sharded" in found.why_not) is (verdict == UNKNOWN)


COLAB = Origin(Span("a.ipynb", 1), "the notebook's metadata")


@pytest.mark.parametrize(
    ("length", "gpu", "verdict"),
    [
        (512, "A100", FITS),  # on the one of 40 GB, hence on the other
        (2048, "A100", UNKNOWN),
        (2048, "A100 40GB", DOES_NOT_FIT),
        (2048, "L4", DOES_NOT_FIT),  # which comes in one size
        (65536, "A100", DOES_NOT_FIT),  # on either
    ],
)
def test_a_card_that_a_file_names_without_its_size(length: int, gpu: str, verdict: str) -> None:
    facts = {**LORA, "batch.sequence_length": length, "batch.micro_batch_size": 4}
    said_by_colab = {"hardware.gpu": Fact(gpu, origin=(COLAB,))}
    run = TrainingRun("a.ipynb", Span("a.ipynb", 1), {name: fixed(value) for name, value in facts.items()} | said_by_colab)
    assert assess(run, target(run, Settings())).verdict == verdict
    if gpu == "A100":  # somebody who writes it means the smaller one, as `memlint gpus` says
        said = Settings(gpu="A100")
        assert assess(run, target(run, said), said).verdict != UNKNOWN


def test_samples_without_padding_take_their_own_lengths() -> None:
    capped = {**LORA, "batch.sequence_length": 4096, "batch.sequence_length_is_cap": True, "batch.micro_batch_size": 32}
    runs = [known(**capped), known(**capped, **{"batch.padding_free": True})]
    padded, own = (assess(run).estimate for run in runs)
    assert own is not None and padded is not None
    assert own.required.low < padded.required.low / 8  # one sample of 32


@pytest.mark.parametrize(
    ("gpu", "facts", "verdict"),
    [
        # 32 samples of 4096 tokens without checkpointing take hundreds of GiB, but data of short questions do not
        ("a100-80gb", {"batch.sequence_length_is_cap": True}, UNKNOWN),
        ("a100-80gb", {"batch.packing": False}, UNKNOWN),  # every loader of texts cuts them somewhere
        ("a100-80gb", {"batch.packing": True}, DOES_NOT_FIT),
        ("a100-80gb", {"batch.packing": False, "batch.pad_to_max_length": True}, DOES_NOT_FIT),
        ("a100-80gb", {}, DOES_NOT_FIT),  # a loop's own rows are as long as they are
        ("8gb", {"batch.sequence_length_is_cap": True}, DOES_NOT_FIT),  # 12.6 GiB of weights
    ],
)
def test_a_length_at_which_samples_are_cut(gpu: str, facts: dict[str, Any], verdict: str) -> None:
    found = judged(gpu, **{**LORA, "batch.sequence_length": 4096, "batch.micro_batch_size": 32, **facts})
    assert found.verdict == verdict
    assert ("it is only their cap" in found.why_not) is (verdict == UNKNOWN)
    if gpu == "8gb":  # 6.74e9 x 2 B = 12.55 GiB of weights, less the 1.5 % of the model, and next to nothing
        assert found.estimate is not None and 12.3 < found.estimate.required.low / 2**30 < 14


def test_a_length_that_a_person_states_is_no_cap() -> None:
    run = known(**{**LORA, "batch.sequence_length": 512, "batch.packing": False, "batch.micro_batch_size": 32})
    said = Settings(set={"batch.sequence_length": 4096})
    assert assess(run, find("a100-80gb"), said).verdict == DOES_NOT_FIT
