"""The script that measures real runs, in so far as it needs no torch; `tests/oracle/test_measure.py` runs its cases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.accuracy.cases import load
from benchmarks.accuracy.score import evaluate
from benchmarks.measure.__main__ import compare, run
from benchmarks.measure.cases import CASES, Case, chosen, tiny
from benchmarks.measure.rows import rows_of
from memlint.facts.keys import KEYS, check
from memlint.models import lookup

ROOT = Path(__file__).parents[1]
ALL = [*CASES, *(tiny(case) for case in CASES)]
GIB = 2**30


def gpu_outcome(**more: Any) -> dict[str, Any]:
    """What a run on a card reads; the figures are made up."""
    return {
        "kind": "ran",
        "gpu": "NVIDIA A100-SXM4-80GB",
        "gpu_bytes": 80 * GIB,
        "allocated": 9 * GIB,
        "reserved": 10 * GIB,
        "device": 11 * GIB,
        "device_by": "nvml",
        "phases": {"forward": 8 * GIB, "backward": 9 * GIB},
        "versions": {"torch": "2.13.0"},
        **more,
    }


def written(path: Path, *rows: dict[str, Any]) -> Path:
    """A file of rows."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_facts_of_a_case_are_canonical(case: Case) -> None:
    """Known keys, values in their canonical spelling and type."""
    for key, value in case.facts.items():
        assert key in KEYS
        assert check(key, value) == value


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_memlint_estimates_every_case(case: Case, tmp_path: Path) -> None:
    """From a shape that it knows exactly, and on a card that it knows."""
    row = rows_of(case, gpu_outcome())[0]
    (read,) = load(written(tmp_path / "rows.jsonl", row))
    found = lookup(case.facts["model.id"], config=case.facts.get("model.config"))
    assert found.exact
    assert read.gpu is not None and read.gpu.name == "NVIDIA A100 80GB"
    result = evaluate(read)
    assert result.why_not == ""
    assert result.predicted is not None and result.predicted.expected > 0


def test_the_list_has_what_the_published_measurements_lack() -> None:
    """About forty cases of the kinds that are rare among them, each under its own name."""
    assert 40 <= len(CASES) <= 50
    assert len({case.name for case in CASES}) == len(CASES)

    def number(**wanted: Any) -> int:
        keys = {key.replace("__", "."): value for key, value in wanted.items()}
        return sum(all(case.facts.get(key) == value for key, value in keys.items()) for case in CASES)

    assert number(checkpointing__enabled=False) >= 30
    assert number(model__attention="eager") >= 5
    assert number(model__attention="sdpa") >= 20
    assert number(adapter__method="lora", adapter__dropout=0.1) >= 5
    assert number(precision="fp16-mixed") >= 5
    assert sum("8bit" in case.facts["optimizer.name"] for case in CASES) >= 3
    assert number(objective="sequence_classification") >= 4
    assert number(objective="image_classification") >= 4
    assert number(objective="dpo") >= 2


def test_a_run_on_a_card_is_three_rows_of_the_benchmark(tmp_path: Path) -> None:
    """Allocated, reserved and device total, each a measurement in bytes that the accuracy benchmark reads."""
    rows = rows_of(CASES[0], gpu_outcome())
    cases = load(written(tmp_path / "rows.jsonl", *rows))
    assert [(case.kind, case.metric, case.bytes) for case in cases] == [
        ("bytes", "allocated", 9 * GIB),
        ("bytes", "reserved", 10 * GIB),
        ("bytes", "device", 11 * GIB),
    ]
    assert {case.facts["framework.versions"]["torch"] for case in cases} == {"2.13.0"}
    assert {case.facts["hardware.gpu"] for case in cases} == {"NVIDIA A100-SXM4-80GB"}
    published = json.loads((ROOT / "benchmarks/accuracy/data/cases.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert {"id", "group", "source", "run", "measured", "tier", "scope"} <= set(rows[0]) & set(published)
    text = compare(tmp_path / "rows.jsonl")
    assert all(f"own-{CASES[0].name}-{metric}" in text for metric in ("allocated", "reserved", "device"))


def test_a_device_total_by_the_driver_says_what_it_leaves_out() -> None:
    """Without NVML the figure is not what nvidia-smi shows, so it is no tier A measurement."""
    tiers = [row["tier"] for row in rows_of(CASES[0], gpu_outcome(device_by="mem_get_info"))]
    assert tiers == ["A", "A", "B"]


def test_running_out_of_memory_is_a_row(tmp_path: Path) -> None:
    """A verdict case: 0.5 B parameters in float32 with AdamW (8 GB at least) did not fit, and `fits` would be wrong."""
    outcome = {"kind": "oom", "why": "CUDA out of memory.", "gpu": "NVIDIA A100-SXM4-80GB", "gpu_bytes": 80 * GIB}
    (row,) = rows_of(CASES[0], outcome)
    assert (row["measured"]["kind"], row["measured"]["bytes"], row["measured"]["gpu_memory_gb"]) == ("oom", None, 80)
    (case,) = load(written(tmp_path / "rows.jsonl", row))
    result = evaluate(case)
    assert (result.verdict, result.wrong_verdict) == ("fits", True)  # it needs 16 of 80 GB: the row is made up


def test_a_run_on_the_cpu_has_no_figures(tmp_path: Path) -> None:
    """It is marked, has no bytes, and is not compared."""
    (row,) = rows_of(tiny(CASES[0]), {"kind": "ran", "versions": {"torch": "2.13.0"}, "parameters": 107072})
    assert row["measured"] == {"kind": "ran", "bytes": None, "metric": "none", "gpu": None, "gpu_memory_gb": None}
    assert "CPU" in row["notes"]
    text = compare(written(tmp_path / "rows.jsonl", row))
    assert text.startswith("nothing to compare")
    assert row["id"] in text


def test_the_time_limit_leaves_the_rest_out(tmp_path: Path) -> None:
    """No time: no process is started and no row is written."""
    output = tmp_path / "rows.jsonl"
    assert run(list(CASES), "cpu", 1, 0.0, output) == len(CASES)
    assert output.read_text(encoding="utf-8") == ""


def test_cases_are_chosen_by_words() -> None:
    """A word is a part of a name; no word means all."""
    assert [case.name for case in chosen(["qlora"])] == ["llama-qlora", "llama8-qlora"]
    assert list(chosen([])) == list(CASES)


def test_the_list_is_printed_without_torch() -> None:
    """One line a case, with the packages that it needs; torch is not imported for it."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv[1:] = ['--list']; from benchmarks.measure.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(CASES)
    assert [line.split() for line in lines if line.startswith("llama-qlora")] == [["llama-qlora", "peft", "bitsandbytes"]]
