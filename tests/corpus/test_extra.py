"""Inputs of our own beside the labelled corpus: every key right, nothing claimed that is wrong."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRA = ROOT / "tests" / "corpus" / "extra"


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("extraction_benchmark", ROOT / "benchmarks" / "extraction.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCHMARK = benchmark()


@pytest.mark.parametrize("case", sorted(path.parent.name for path in EXTRA.glob("*/expected.yaml")))
def test_every_key_is_as_expected(case: str) -> None:
    result = BENCHMARK.evaluate([EXTRA / case])
    assert result.lines == []
    assert result.runs["found"] == result.runs["expected"]
    assert result.runs["spurious"] == 0
    assert result.runs["broken"] == result.runs["reported"]


def test_there_are_cases() -> None:
    assert len(list(EXTRA.glob("*/expected.yaml"))) >= 150
