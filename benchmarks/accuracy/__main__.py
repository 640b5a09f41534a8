"""`python -m benchmarks.accuracy`: the accuracy of memlint against published measurements."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.accuracy import bars, document, figure, peers, tables
from benchmarks.accuracy.cases import CASES, SEED_CASES, load
from benchmarks.accuracy.score import Result, evaluate_all, summarise


def main() -> None:
    """Print the tables; write the figure or JSON where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--rows", metavar="GROUP", action="append", help="list each case of a family (or `all`)")
    parser.add_argument("--cases", type=Path, default=CASES, help="another file of cases")
    parser.add_argument("--seed", action="store_true", help="the seed cases instead")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    parser.add_argument("--figure", type=Path, help="write the scatter plot (SVG) there")
    parser.add_argument("--bars", action="store_true", help="write bars.json: the figures that tests/test_accuracy.py holds")
    parser.add_argument("--peers", action="store_true", help="show the peers beside memlint")
    parser.add_argument("--run-peers", action="store_true", help="run the installed peers again and record what they predict")
    parser.add_argument("--document", type=Path, help="write the page with all figures (docs/accuracy.md) there")
    options = parser.parse_args()
    cases = load(SEED_CASES if options.seed else options.cases)
    if options.run_peers:
        peers.record(cases)
    results = evaluate_all(cases)
    if options.figure:
        options.figure.write_text(figure.scatter(results), encoding="utf-8")
    if options.bars:
        bars.write(results)
    if options.document:
        options.document.write_text(document.page(results), encoding="utf-8")
    if options.json:
        print(json.dumps(_json(results), indent=1))
    elif options.rows:
        print(tables.rows([r for r in results if r.case.group in options.rows or "all" in options.rows]))
    elif options.peers:
        print(peers.table(results))
    else:
        print(tables.families(results))


def _json(results: list[Result]) -> dict[str, object]:
    return {
        "families": {group: asdict(summarise(members)) for group, members in tables.by_group(results).items()},
        "classes": {name: asdict(summarise(r for r in results if holds(r))) for name, holds in tables.CLASSES},
        "cases": [
            {
                "id": r.case.id,
                "group": r.case.group,
                "metric": r.case.metric,
                "measured": r.case.bytes,
                "predicted": asdict(r.predicted) if r.predicted else None,
                "error": r.error,
                "phase": r.phase,
                "verdict": r.verdict,
                "kind": r.case.kind,
                "why_not": r.why_not,
            }
            for r in results
        ],
    }


if __name__ == "__main__":
    main()
