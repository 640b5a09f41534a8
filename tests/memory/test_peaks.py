"""The peak of each phase of a training step, against real model classes and optimizers (tests/oracle/peaks.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.program import record
from memlint.memory.setup import setup_of
from memlint.memory.timeline import SIMULATED, unrolled
from memlint.models.config import from_config
from memlint.source import Span
from tests.memory.test_saved_activations import facts_of

RECORD = json.loads((Path(__file__).parents[1] / "oracle" / "peaks.json").read_text())
CUBLAS = 2 * 8_519_680
"""The workspaces of two threads, which the tracer cannot see (seen as blocks of that size on a T4)."""
CASES = [(case, phase) for case in RECORD["cases"] for phase in ("forward", "backward", "optimizer_step")]


def name(value: Any) -> str:
    """A readable test id."""
    if isinstance(value, str):
        return value
    kept = "-keeps" if value["keeps_outputs"] else ""
    return f"{value['model_type']}-b{value['batch']}-s{value['sequence']}-{value['regime']}-{value['optimizer']}{kept}"


def predicted(case: dict[str, Any]) -> dict[str, int]:
    """Peak bytes by phase; the loss counts as forward."""
    model = RECORD["models"][case["model_type"]]
    layers = model["layers"]
    architecture = from_config({"model_type": case["model_type"], **model["config"], **dict.fromkeys(model["depth"], layers)})
    facts = facts_of(model["head"], case["regime"]) | {
        "batch.micro_batch_size": case["batch"],
        "batch.sequence_length": case["sequence"],
        "optimizer.name": case["optimizer"],
        "optimizer.foreach": case["optimizer"] != "adamw_torch_fused",
        "framework.name": "pytorch" if case["keeps_outputs"] else "transformers",
        "framework.versions": RECORD["versions"],
    }
    run = TrainingRun("record", Span("record", 1, 1, 1, 1), {key: fixed(value) for key, value in facts.items()})
    program = record(setup_of(run, architecture, None, []), architecture, SIMULATED)
    found = {peak.phase: peak.total for peak in unrolled(program.ledger, SIMULATED, layers).peaks}
    return {**found, "forward": max(found["forward"], found["loss"])}


@pytest.mark.parametrize(("case", "phase"), CASES, ids=name)
def test_the_peak_of_a_phase(case: dict[str, Any], phase: str) -> None:
    """Within 1 % of the traced step."""
    assert predicted(case)[phase] - CUBLAS == pytest.approx(case["peaks"][phase], rel=0.01)
