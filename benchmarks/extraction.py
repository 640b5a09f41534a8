"""How much of a training run memlint understands: the extractor against the labelled cases of `tests/corpus/extraction`.

    python benchmarks/extraction.py [--root DIR ...] [--gpu-bf16 yes|no] [--by dialect|case|key] [--verbose] [--min 0.98]

A case is a folder with input files and `expected.yaml` (its format: tests/corpus/extraction/README.md). Precision counts every
claimed value that is wrong, recall every determined value that is missing; a wrong value claimed as *fixed* is counted apart,
because rules report errors on those.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from memlint.extract import extract
from memlint.facts import Status, TrainingRun
from memlint.facts.keys import normalise
from memlint.project import Project

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "corpus" / "extraction"
SETS = {"adapter.target_modules", "adapter.modules_to_save"}

Verdict = tuple[str, str, str, Any, Any]
"""(key, bucket, verdict, expected, (status, got))"""


def cases(roots: list[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every case below the roots: its folder and its expectations."""
    for root in roots:
        for file in sorted(root.rglob("expected.yaml")):
            yield file.parent, yaml.safe_load(file.read_text(encoding="utf-8"))


def canonical(key: str, value: Any) -> Any:
    """A value in a form that compares by meaning."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, (list, tuple)):
        return tuple(sorted(map(str, value))) if key in SETS else tuple(canonical(key, item) for item in value)
    value = normalise(key, value)
    return value.lower() if isinstance(value, str) and key == "hardware.gpu" else value


def equal(key: str, expected: Any, got: Any) -> bool:
    """Whether a value is what is expected (`any_of` accepts each member; mappings compare as a subset)."""
    if isinstance(expected, dict) and set(expected) == {"any_of"}:
        return any(equal(key, member, got) for member in expected["any_of"])
    if isinstance(expected, dict):
        return isinstance(got, Mapping) and all(k in got and equal(k, v, got[k]) for k, v in expected.items())
    left, right = canonical(key, expected), canonical(key, got)
    if left == right and isinstance(left, bool) == isinstance(right, bool):
        return True
    singles = [side[0] if isinstance(side, tuple) and len(side) == 1 else side for side in (left, right)]
    return bool(singles[0] == singles[1])


def predicted(run: TrainingRun) -> dict[str, tuple[str, Any]]:
    """The run's facts as (status, value or list of choices)."""
    return {
        key: (fact.status.value, list(fact.choices) if fact.status is Status.CHOICES else fact.value)
        for key, fact in run.facts.items()
    }


def judge(expected: dict[str, Any], got: dict[str, tuple[str, Any]], gpu: str | None = None) -> list[Verdict]:
    """One expected run against one found run.

    Verdicts: right, wrong, miss, ok (rightly silent), claim (claimed where nothing can be known), soft, soft-wrong.
    """
    verdicts: list[Verdict] = []
    for bucket in ("facts", "defaults", "soft"):
        for key, want in (expected.get(bucket) or {}).items():
            status, value = got.get(key, ("absent", None))
            silent = status in ("absent", "unknown")
            if bucket == "soft":
                if status in ("fixed", "default"):
                    verdict = "soft" if equal(key, want, value) else "soft-wrong"
                    verdicts.append((key, bucket, verdict, want, (status, value)))
                continue
            if silent or (status == "choices" and any(equal(key, want, item) for item in value or [])):
                verdict = "miss"
            else:
                verdict = "right" if status != "choices" and equal(key, want, value) else "wrong"
            verdicts.append((key, bucket, verdict, want, (status, value)))
    for key, wants in (expected.get("choices") or {}).items():
        status, value = got.get(key, ("absent", None))
        same = status == "choices" and _same_set(key, wants, value)
        verdict = "miss" if status in ("absent", "unknown") else "right" if same else "wrong"
        verdicts.append((key, "choices", verdict, wants, (status, value)))
    for key, by_gpu in (expected.get("by_gpu") or {}).items():
        status, value = got.get(key, ("absent", None))
        wants = [by_gpu["bf16_gpu"], by_gpu["no_bf16_gpu"]]
        wants = wants if gpu is None else [wants[gpu == "no"]]
        if status == "choices":
            verdict = "right" if gpu is None and _same_set(key, wants, value) else "wrong"
        else:
            verdict = "right" if any(equal(key, want, value) for want in wants) else "wrong"
        verdicts.append((key, "by_gpu", "miss" if status in ("absent", "unknown") else verdict, wants, (status, value)))
    for key in expected.get("unknown") or []:
        status, value = got.get(key, ("absent", None))
        verdicts.append((key, "unknown", "ok" if status in ("absent", "unknown") else "claim", None, (status, value)))
    for key, nots in (expected.get("forbidden") or {}).items():
        status, value = got.get(key, ("absent", None))
        if status in ("fixed", "default") and any(equal(key, bad, value) for bad in nots):
            verdicts.append((key, "forbidden", "claim", f"not {nots}", (status, value)))
    return verdicts


def _same_set(key: str, wants: list[Any], got: list[Any]) -> bool:
    return all(any(equal(key, want, item) for item in got) for want in wants) and all(
        any(equal(key, want, item) for want in wants) for item in got
    )


def match(expected: list[dict[str, Any]], runs: list[dict[str, tuple[str, Any]]], gpu: str | None) -> dict[int, int]:
    """A greedy one-to-one assignment of found runs to expected ones, best agreement first."""

    def goodness(i: int, j: int) -> int:
        verdicts = [verdict for _, _, verdict, _, _ in judge(expected[i], runs[j], gpu)]
        return verdicts.count("right") - verdicts.count("wrong") - verdicts.count("claim")

    table = sorted(((goodness(i, j), -abs(i - j), i, j) for i in range(len(expected)) for j in range(len(runs))), reverse=True)
    pairs: dict[int, int] = {}
    for _, _, i, j in table:
        if i not in pairs and j not in pairs.values():
            pairs[i] = j
    return pairs


class Score:
    """Counts of verdicts, with the two figures."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.fixed_wrong = 0

    def add(self, verdict: str, status: str) -> None:
        """Count one fact."""
        self.counts[verdict] += 1
        self.fixed_wrong += verdict in ("wrong", "claim", "soft-wrong") and status == "fixed"

    @property
    def precision(self) -> float:
        """Right facts of those that were claimed; 1 when nothing was."""
        right = self.counts["right"] + self.counts["soft"]
        false = self.counts["wrong"] + self.counts["claim"] + self.counts["soft-wrong"]
        return right / (right + false) if right + false else 1.0

    @property
    def recall(self) -> float:
        """Right facts of those that the case expects; 1 when it expects none."""
        right, missed = self.counts["right"], self.counts["miss"] + self.counts["wrong"]
        return right / (right + missed) if right + missed else 1.0

    def row(self, name: str) -> str:
        """The line of the table."""
        counts = self.counts
        return (
            f"{name:46} {counts['right']:5d} {counts['wrong'] + counts['soft-wrong']:5d} {counts['claim']:5d} "
            f"{counts['miss']:5d} {self.fixed_wrong:11d}  {100 * self.precision:5.1f}  {100 * self.recall:5.1f}"
        )


class Result:
    """The scores of a whole corpus: in all, and by dialect, case and key."""

    def __init__(self) -> None:
        self.total = Score()
        self.by: dict[str, dict[str, Score]] = {name: collections.defaultdict(Score) for name in ("dialect", "case", "key")}
        self.lines: list[str] = []
        self.runs = collections.Counter[str]()


def evaluate(roots: list[Path], gpu: str | None = None) -> Result:
    """Run the extractor over every case below the roots."""
    result = Result()
    for folder, case in cases(roots):
        entry = folder / case["entry"]
        extraction = extract(str(entry), Project(root=folder.resolve()))
        runs = [predicted(run) for run in extraction.runs]
        pairs = match(case["runs"], runs, gpu)
        allowed = max(len(case["runs"]), case.get("runs_max", 0))
        spurious = 0 if case.get("fragment") else max(0, len(runs) - allowed)
        result.runs.update(expected=len(case["runs"]), found=len(pairs), spurious=spurious, cases=1)
        if spurious:
            result.lines.append(f"{case['id']}: {spurious} spurious run(s)")
        if case.get("expect_error"):
            result.runs.update(broken=1, reported=bool(extraction.errors))
        for index, expected in enumerate(case["runs"]):
            got = runs[pairs[index]] if index in pairs else {}
            for key, bucket, verdict, want, (status, value) in judge(expected, got, gpu):
                for score in (
                    result.total, result.by["dialect"][case.get("dialect", "?")], result.by["case"][case["id"]],
                                            result.by["key"][key],
                ):  # fmt: skip
                    score.add(verdict, status)
                if verdict not in ("right", "ok", "soft"):
                    result.lines.append(
                        f"{case['id']} run {index}: {key} {verdict}: expected {want!r} [{bucket}], got {value!r} [{status}]"
                    )
    return result


def main() -> int:
    """Print the table; 1 below the asked precision or recall."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", action="append", type=Path, help="folders with cases; default: the corpus in the repository")
    parser.add_argument("--gpu-bf16", choices=["yes", "no"], help="score as if the card has / has not bf16")
    parser.add_argument("--by", choices=["dialect", "case", "key"], default="dialect")
    parser.add_argument("--verbose", action="store_true", help="list everything that is not right")
    parser.add_argument("--min", type=float, default=0.0, help="fail below this precision or recall")
    options = parser.parse_args()
    result = evaluate(options.root or [CORPUS], options.gpu_bf16)
    if options.verbose:
        print(*result.lines, sep="\n")
    print(f"\n{options.by:46} right wrong claim  miss fixed-wrong  prec%   rec%")
    for name, score in sorted(result.by[options.by].items()):
        print(score.row(name))
    print(result.total.row("all"))
    print(", ".join(f"{name} {count}" for name, count in result.runs.items()))
    return int(result.total.precision < options.min or result.total.recall < options.min)


if __name__ == "__main__":
    sys.exit(main())
