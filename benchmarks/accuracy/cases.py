"""The published measurements: one case is the facts of a run and what was measured of it. Described in data/README.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memlint.facts import TrainingRun, fixed
from memlint.facts.keys import normalise
from memlint.gpus import Gpu, find
from memlint.source import Span

DATA = Path(__file__).parent / "data"
CASES = DATA / "cases.jsonl"
SEED_CASES = DATA / "seed_cases.jsonl"


@dataclass(frozen=True, slots=True)
class Case:
    """One measured run. `kind` is bytes, fits or oom; `metric` is allocated, reserved or device."""

    id: str
    group: str
    tier: str
    run: TrainingRun
    kind: str
    metric: str
    bytes: int
    gpu: Gpu | None
    facts: Mapping[str, Any]
    scope: str
    """Empty for a whole training step."""
    shares_length: str
    """The cases with the same text here were run at one common length that the source does not state."""

    def at_length(self, tokens: int) -> Case:
        """The same case with its sequence length known."""
        return replace(self, run=self.run.with_values({"batch.sequence_length": tokens}, "the common length of its group"))


def load(path: Path = CASES) -> list[Case]:
    """Every case of a file, in its order."""
    return [_case(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _case(row: Mapping[str, Any]) -> Case:
    measured = row["measured"]
    span = Span(row["id"], 1, 1, 1, 1)
    facts = {key: fixed(normalise(key, value)) for key, value in row["run"].items() if value is not None}
    return Case(
        id=row["id"],
        group=row["group"],
        tier=row.get("tier", ""),
        run=TrainingRun(row["id"], span, facts, dialect="run"),
        kind=measured["kind"],
        metric=measured.get("metric") or "",
        bytes=int(measured.get("bytes") or 0),
        gpu=_card(measured, row["run"]),
        facts=row["run"],
        scope=row.get("measured_scope", ""),
        shares_length=row.get("relative_group") or "",
    )


def _card(measured: Mapping[str, Any], run: Mapping[str, Any]) -> Gpu | None:
    """The card a case ran on; where only its size is stated, a card of that size."""
    for name in (measured.get("gpu"), run.get("hardware.gpu")):
        if name and (card := find(str(name))):
            return card
    size = measured.get("gpu_memory_gb")
    return find(f"{size:g}GB") if size else None
