"""From what a run read to rows in the format of the accuracy benchmark's cases (`benchmarks/accuracy/data/README.md`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.measure.cases import Case

METRICS = ("allocated", "reserved", "device")
GROUP = "own"
SOURCE = "benchmarks/measure"
AUX = ("parameters", "trainable", "allocated_after_load", "phases", "device_by", "device_readings")

Row = dict[str, Any]


def rows_of(case: Case, outcome: Mapping[str, Any]) -> list[Row]:
    """One row per metric of a run on a GPU; one row of kind `oom` or `failed`, or of metric `none` for a run on the CPU."""
    kind = outcome["kind"]
    gpu, total = outcome.get("gpu"), outcome.get("gpu_bytes")
    run = {**case.facts, "framework.versions": outcome.get("versions", {})}
    if gpu:
        run["hardware.gpu"] = gpu
    common: Row = {"group": GROUP, "source": SOURCE, "run": run}
    card: Row = {"gpu": gpu, "gpu_memory_gb": round(total / 2**30) if total else None}
    aux = {key: outcome[key] for key in AUX if outcome.get(key) is not None}
    scope = "vision_language" if "batch.image_size" in case.facts else "text_transformer"
    end: Row = {"tier": "A", "scope": scope, "aux": aux}
    if kind == "ran" and gpu:
        return [
            {
                "id": f"{GROUP}-{case.name}-{metric}",
                **common,
                "measured": {"kind": "bytes", "bytes": outcome[metric], "metric": metric, **card},
                **end,
                **_note(metric, outcome),
            }
            for metric in METRICS
        ]
    notes = "ran on the CPU: nothing was measured" if kind == "ran" else outcome.get("why", "")
    measured = {"kind": kind, "bytes": None, "metric": "none" if kind == "ran" else None, **card}
    return [{"id": f"{GROUP}-{case.name}", **common, "measured": measured, **end, "notes": notes}]


def _note(metric: str, outcome: Mapping[str, Any]) -> Row:
    """What a reader of a device total must know."""
    if metric != "device":
        return {}
    if outcome.get("device_by") != "nvml":
        return {"tier": "B", "notes": "total minus free of the CUDA driver: what the driver itself holds back is not in it"}
    return {}
