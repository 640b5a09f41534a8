"""What is said of a model that no page describes: its parameters' share, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.assess import assess
from memlint.facts import TrainingRun, fixed
from memlint.gpus import find
from memlint.memory.families import PAGES
from memlint.memory.floor import Floor, floor
from memlint.models import Architecture
from memlint.source import Span

# 10 layers with two square Linears of 1,000 and 5,000 other parameters; a head that shares the embedding is in neither.
ARCHITECTURE = Architecture(
    "org/strange",
    "strange",
    {},
    layers=10,
    params=20_005_000,
    linears=(("q_proj", 1000, 1000, 10), ("o_proj", 1000, 1000, 10), ("lm_head", 1000, 5000, 1)),
)


def least(**facts: Any) -> Floor | None:
    given = {"model.dtype": "bfloat16", "precision": "bf16-true", "batch.micro_batch_size": 1, "batch.sequence_length": 8}
    run = TrainingRun("a.py", Span("a.py", 1, 1, 1, 1), {key: fixed(value) for key, value in {**given, **facts}.items()})
    return floor(run, ARCHITECTURE, None)


def test_full_fine_tuning() -> None:
    assert least(**{"optimizer.name": "adamw_torch"}) == Floor(2 * 20_005_000, 2 * 20_005_000, 2 * 2 * 20_005_000)


def test_autocast_keeps_everything_in_float32() -> None:
    wide = {"model.dtype": "float32", "precision": "bf16-mixed", "optimizer.name": "adamw_torch"}
    assert least(**wide) == Floor(4 * 20_005_000, 4 * 20_005_000, 2 * 4 * 20_005_000)


def test_sharded_over_eight() -> None:
    found = least(**{"parallel.strategy": "fsdp2", "parallel.gpus": 8, "optimizer.name": "sgd"})
    assert found == Floor(2 * 20_005_000 // 8, 2 * 20_005_000 // 8, 0)


def test_an_adapter_of_rank_4_on_one_linear_of_each_layer() -> None:
    adapter = {"adapter.method": "lora", "adapter.r": 4, "adapter.target_modules": ["q_proj"], "adapter.dtype": "float32"}
    found = least(**adapter, **{"optimizer.name": "adamw_torch"})
    trained = 10 * (4 * 1000 + 1000 * 4)
    assert found == Floor(2 * 20_005_000 + 4 * trained, 4 * trained, 2 * 4 * trained)


def test_four_bit_weights() -> None:
    quantised = {"adapter.method": "lora", "adapter.target_modules": [], "quantization.method": "bnb_4bit"}
    # Half a byte per weight, a float32 per 64 and the 16 float32 of the code for the twenty Linears; the rest in bfloat16.
    found = least(**quantised, **{"quantization.double_quant": False})
    assert found is not None
    assert found.weights == pytest.approx(10_000_000 + 20_000_000 // 64 * 4 + 2 * 5_000, abs=20 * 64)


def test_the_sentence_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(PAGES, "llama")
    facts = {"model.id": "meta-llama/Llama-2-7b-hf", "model.dtype": "bfloat16", "precision": "bf16-true", "optimizer.name": "sgd"}
    facts |= {"batch.micro_batch_size": 1, "batch.sequence_length": 8}
    run = TrainingRun("a.py", Span("a.py", 1, 1, 1, 1), {key: fixed(value) for key, value in facts.items()})
    # 6,738,415,616 parameters at two bytes, and as many gradients.
    sentence = (
        "no memory page for model type 'llama'; without activations, which are not known, it takes 25.1 GiB "
        "(weights 12.6, gradients 12.6)"
    )
    assert assess(run).why_not == assess(run, find("a100-80gb")).why_not == sentence
    assert assess(run, find("24GB")).why_not == f"{sentence}: more than 24 GB card has"
