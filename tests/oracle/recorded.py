"""The record of real models: a file of `traces/` for each family, read without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .families import FAMILIES

TRACES = Path(__file__).with_name("traces")
FIELDS = ("held", "weight_copies", "outputs", "forward_peak", "backward_peak", "trainable")
"""The numbers of one step: bytes in allocator blocks (multiples of 512); `trainable` is a count."""


def trace_of(name: str) -> dict[str, Any]:
    """What is recorded of one family."""
    found: dict[str, Any] = json.loads((TRACES / f"{name}.json").read_text())
    return found


def traces() -> dict[str, dict[str, Any]]:
    """What is recorded, by family, in their order."""
    return {family.name: trace_of(family.name) for family in FAMILIES}
