"""The script half of the labelled corpus (Python, notebooks, shell launches), with the bars that were reached."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "corpus" / "extraction" / "scripts"


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("extraction_benchmark", ROOT / "benchmarks" / "extraction.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def result():
    return benchmark().evaluate([SCRIPTS])


def test_precision_and_recall_over_all_keys(result) -> None:
    assert result.runs["cases"] == 76
    assert result.total.precision >= 0.99, result.lines
    assert result.total.recall >= 0.99, result.lines


def test_every_key_alone(result) -> None:
    weak = {key: (score.precision, score.recall) for key, score in result.by["key"].items()
            if min(score.precision, score.recall) < 0.97}  # fmt: skip
    assert weak == {}, result.lines


def test_no_value_is_claimed_as_fixed_and_wrong(result) -> None:
    assert result.total.fixed_wrong == 0, result.lines


def test_no_run_is_missed_or_invented(result) -> None:
    assert result.runs["found"] == result.runs["expected"]
    assert result.runs["spurious"] == 0


def test_broken_inputs_are_reported(result) -> None:
    assert result.runs["broken"] == result.runs["reported"] > 0
