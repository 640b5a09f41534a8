"""`python -m benchmarks.measure`: measure the cases on this machine, or put memlint's estimate beside rows measured earlier.

    python -m benchmarks.measure --output rows.jsonl --seconds 600
    python -m benchmarks.measure --device cpu --tiny --output rows.jsonl smol bert
    python -m benchmarks.measure --compare rows.jsonl

Needs torch, transformers and peft (the `oracle` extra), for some cases bitsandbytes, and for device totals as nvidia-smi shows
them nvidia-ml-py; comparing needs none of them. Use a card on which nothing else runs: device totals are of the whole card.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.accuracy import tables
from benchmarks.accuracy.cases import load
from benchmarks.accuracy.score import Result, evaluate_all
from benchmarks.measure.cases import Case, chosen, tiny
from benchmarks.measure.rows import rows_of

ROOT = Path(__file__).parents[2]
VERDICTS = ("bytes", "oom")
"""The kinds of rows that an estimate can be compared with."""


def outcome_of(case: Case, device: str, steps: int, seconds: float) -> dict[str, Any]:
    """What one case reads, in a process of its own, so that its end is not that of the others."""
    command = [sys.executable, "-m", "benchmarks.measure.train"]
    request = json.dumps({"facts": case.facts, "device": device, "steps": steps})
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=seconds, env=environment, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return {"kind": "failed", "why": "the time limit ended it"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"kind": "failed", "why": f"exit status {done.returncode}: {last}"}
    outcome: dict[str, Any] = json.loads(lines[-1])
    return outcome


def run(cases: list[Case], device: str, steps: int, seconds: float, output: Path) -> int:
    """Measure the cases one after the other, each row written as soon as it is there; the number of cases left for lack of time."""
    end = time.monotonic() + seconds
    with output.open("w", encoding="utf-8") as file:
        for number, case in enumerate(cases):
            left = end - time.monotonic()
            if left <= 0:
                return len(cases) - number
            outcome = outcome_of(case, device, steps, left)
            for row in rows_of(case, outcome):
                file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{case.name:<32}{outcome['kind']:<8}{_told(outcome)}", flush=True)
    return 0


def _told(outcome: dict[str, Any]) -> str:
    if "allocated" in outcome:
        return "".join(f"{metric} {outcome[metric] / 2**30:.2f} GiB  " for metric in ("allocated", "reserved", "device"))
    return str(outcome.get("why", ""))


def compare(path: Path) -> str:
    """memlint's estimate beside each row, then the table of the accuracy benchmark; rows that failed are only counted."""
    cases = load(path)
    results = evaluate_all(case for case in cases if case.kind in VERDICTS)
    others = [case for case in cases if case.kind not in VERDICTS]
    lines = [tables.rows(results), "", tables.families(results)] if results else ["nothing to compare"]
    if others:
        lines.append("\nnot compared, estimate of what it needs:")
        lines += [f"{r.case.id:<46}{r.case.kind:<8}{_estimated(r)}" for r in evaluate_all(others)]
    return "\n".join(lines)


def _has_gpu() -> bool:
    import torch  # neither listing nor comparing needs it

    return bool(torch.cuda.is_available())


def _estimated(result: Result) -> str:
    return f"{result.predicted.expected / 2**30:.2f} GiB" if result.predicted else result.why_not


def main() -> int:
    """Exit code 1 when no case ran."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="only the cases with one of these in their names")
    parser.add_argument("--output", type=Path, default=Path("rows.jsonl"), help="where the rows go (rows.jsonl)")
    parser.add_argument("--seconds", type=float, default=600, help="time limit for all of it (600)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu; a CPU reads no memory (cuda)")
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps a case (3)")
    parser.add_argument("--tiny", action="store_true", help="models of two narrow layers, to try the script")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    parser.add_argument("--compare", type=Path, metavar="ROWS", help="show memlint's estimates beside these rows")
    options = parser.parse_args()
    if options.compare:
        print(compare(options.compare))
        return 0
    cases = [tiny(case) if options.tiny else case for case in chosen(options.words)]
    if options.list:
        print("\n".join(f"{case.name:<32}{' '.join(case.needs)}" for case in cases))
        return 0
    if options.device.startswith("cuda") and not _has_gpu():
        parser.error("torch finds no GPU here; `--device cpu --tiny` tries the script without one")
    left = run(cases, options.device, options.steps, options.seconds, options.output)
    if left:
        print(f"time limit: {left} of {len(cases)} cases were not run")
    kinds = [json.loads(line)["measured"]["kind"] for line in options.output.read_text(encoding="utf-8").splitlines()]
    return 0 if any(kind != "failed" for kind in kinds) else 1


if __name__ == "__main__":
    sys.exit(main())
