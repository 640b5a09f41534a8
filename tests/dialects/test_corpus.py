"""The configuration half of the labelled corpus, with the bars that were reached."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "tests" / "corpus" / "extraction" / "configs"


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("extraction_benchmark", ROOT / "benchmarks" / "extraction.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def result():
    return benchmark().evaluate([CONFIGS])


def test_precision_and_recall_over_all_keys(result) -> None:
    assert result.runs["cases"] >= 50
    assert result.total.precision >= 0.98, result.lines
    assert result.total.recall >= 0.98, result.lines


def test_no_value_is_claimed_as_fixed_and_wrong(result) -> None:
    assert result.total.fixed_wrong == 0, result.lines


def test_no_run_is_missed_or_invented(result) -> None:
    assert result.runs["found"] == result.runs["expected"]
    assert result.runs["spurious"] == 0


@pytest.mark.parametrize("gpu", ["yes", "no"])
def test_the_pairs_that_depend_on_the_card_are_pairs(result, gpu: str) -> None:
    by_gpu = [line for line in result.lines if "[by_gpu]" in line]
    assert by_gpu == [], gpu
