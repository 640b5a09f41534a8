"""The record of PEFT's tuners is what the installed libraries do: a sample of its cases traced again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .tuners import DEPTHS, TUNERS, step

CASES = json.loads(TUNERS.read_text())["cases"]


@pytest.mark.parametrize("case", CASES[::12], ids=lambda case: f"{case['method']}-{case['regime']}")
def test_the_record_is_reproduced(case: dict[str, Any]) -> None:
    """Tracing again gives the recorded numbers."""
    again = [step(case["method"], depth, case["options"], case["regime"], case["biased"])[0] for depth in DEPTHS]
    assert again == case["fields"]
