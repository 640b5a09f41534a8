"""memlint's reading of command lines against what the real parsers made of the same words (`record_command_lines.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memlint.facts import Fact, fixed
from memlint.project import Project
from memlint.read.pyeval.commands import CommandLines
from memlint.read.pyeval.script import run_script
from memlint.read.pyeval.values import Array, Table
from memlint.source import read

HERE = Path(__file__).parent / "command_lines"
RECORDED = json.loads((HERE / "recorded.json").read_text(encoding="utf-8"))


@dataclass
class Launch:
    argv: tuple[Fact, ...]
    env: Mapping[str, Fact] = field(default_factory=dict)


def plain(fact: Fact) -> Any:
    if not fact.known:
        return f"<{fact.status.value}: {fact.choices or fact.reason}>"
    if isinstance(fact.value, Array):
        return [plain(item) for item in fact.value.items]
    return fact.value


def understood(script: str, launch: Launch | None) -> dict[str, Any]:
    path = HERE / script
    machine = run_script(read(str(path)), CommandLines(), Project(HERE), launch)
    result = machine.modules[str(path)].scope.slots["RESULT"].value
    assert isinstance(result, Table)
    return {str(key): plain(fact) for key, fact in result.entries()}


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"{row['script']} {' '.join(row['argv'])}")
def test_same_values_as_the_real_parser(row: dict[str, Any]) -> None:
    launch = Launch(tuple(fixed(word) for word in row["argv"]), {k: fixed(v) for k, v in row["env"].items()})
    assert understood(row["script"], launch) == row["result"]


def test_enough_is_recorded() -> None:
    assert len(RECORDED) >= 70
    assert len({row["script"] for row in RECORDED}) >= 28


@pytest.mark.parametrize(
    "script", sorted({row["script"] for row in RECORDED if not row["argv"]} - {"environment_and_globals.py"})
)
def test_without_a_launch_the_defaults_stand_as_defaults(script: str) -> None:
    """What a launch without words gives, but never as certain: a launch may say otherwise."""
    row = next(row for row in RECORDED if row["script"] == script and not row["argv"])
    path = HERE / script
    machine = run_script(read(str(path)), CommandLines(), Project(HERE))
    result = machine.modules[str(path)].scope.slots["RESULT"].value
    assert {str(k): plain(f) for k, f in result.entries()} == row["result"]
