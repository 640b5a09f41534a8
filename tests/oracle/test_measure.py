"""The cases of `benchmarks.measure` run: tiny versions on the CPU, and the real shapes are those that memlint counts."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.measure import train
from benchmarks.measure.__main__ import compare
from benchmarks.measure.cases import CASES, Case, tiny
from memlint.assess import assess
from memlint.facts import TrainingRun, fixed
from memlint.source import Span

ROOT = Path(__file__).parents[2]
RUNNABLE = [case for case in CASES if "bitsandbytes" not in case.needs]
"""What the `oracle` extra can run."""
SHAPES = list({(c.facts["model.id"], c.facts["objective"], c.facts["adapter.method"]): c for c in RUNNABLE}.values())


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_a_tiny_version_trains(case: Case) -> None:
    """One optimizer step on the CPU: a finite loss, and no figure of a card."""
    reading = train.measure(tiny(case).facts, "cpu", 1)
    assert math.isfinite(reading["loss"])
    assert 0 < reading["trainable"] <= reading["parameters"]
    assert "allocated" not in reading


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_the_model_built_is_the_one_estimated(case: Case) -> None:
    """Parameters, all and trainable, of the real class at full size (without data) equal those of the estimate."""
    model = train.build(case.facts, "meta")
    run = TrainingRun("case", Span("case", 1, 1, 1, 1), {key: fixed(value) for key, value in case.facts.items()})
    estimate = assess(run).estimate
    assert estimate is not None
    assert sum(p.numel() for p in model.parameters()) == estimate.parameters
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == estimate.trainable_parameters


def test_the_script_writes_rows_from_processes_of_their_own(tmp_path: Path) -> None:
    """The whole way on the CPU: run two cases, read their rows back."""
    output = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "benchmarks.measure", "--device", "cpu", "--tiny", "--steps", "1", "--output", str(output)]
    done = subprocess.run([*command, "smol-eager", "qwen25-sgd"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == ["own-smol-eager-padded-tiny", "own-qwen25-sgd-tiny"]
    for row in rows:
        assert (row["measured"]["kind"], row["measured"]["metric"], row["measured"]["bytes"]) == ("ran", "none", None)
        assert row["run"]["framework.versions"]["torch"] == torch.__version__
    assert "own-qwen25-sgd-tiny" in compare(output)


def test_a_missing_library_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case fails with the reason, the others go on."""
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    case = next(case for case in CASES if case.name == "llama-8bit-adam")
    outcome = train.outcome({"facts": tiny(case).facts, "device": "cpu", "steps": 1})
    assert outcome["kind"] == "failed"
    assert "bitsandbytes" in outcome["why"]


def test_running_out_of_memory_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own error becomes the kind `oom` with the card; no card is needed to raise it."""

    def dies(*_: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    monkeypatch.setattr(train, "measure", dies)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 2**34))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    outcome = train.outcome({"facts": {}, "device": "cuda", "steps": 1})
    assert (outcome["kind"], outcome["gpu"], outcome["gpu_bytes"]) == ("oom", "Tesla T4", 2**34)
    assert outcome["why"] == "CUDA out of memory. Tried to allocate 2.00 GiB."


def test_pairs_prefer_nothing_at_first() -> None:
    """Policy and reference alike: every margin is zero and the loss is -log sigmoid(0) = log 2."""
    case = next(case for case in CASES if case.name == "qwen25-dpo-lora")
    facts = {**tiny(case).facts, "model.dtype": "float32", "precision": "fp32"}
    model = train.build(facts, "cpu")  # LoRA starts at zero, so the adapter changes nothing yet
    batch = train.batch_of(facts, model.config, "cpu")
    assert batch["input_ids"].shape == (4, 16)  # two pairs
    assert train.preference_loss(model, None, batch).item() == pytest.approx(math.log(2), abs=1e-6)
