"""docs/accuracy.md: how the accuracy is measured, and the figures of the working tree."""

from __future__ import annotations

import statistics

from benchmarks.accuracy import peers
from benchmarks.accuracy.score import Result, Summary, summarise
from benchmarks.accuracy.tables import CLASSES, by_group

PAGE = """# How accurate the estimates are

This page is written by `python -m benchmarks.accuracy --document docs/accuracy.md`; the figures are those of its commit.

memlint is compared with measurements that other people published: {cases} runs ({bytes} with bytes, the others with a verdict:
ran, or died out of memory) from {groups} sources, listed with their licences in `benchmarks/accuracy/data/README.md`.
Each number is compared with its own kind: allocated with allocated, reserved with reserved, what nvidia-smi showed with the
device total. An error is predicted / measured - 1. Nothing in the estimator is fitted to these rows; one number of the
benchmark is: the common sequence length of the `peft-mm` runs, which their source leaves open (at most 768 tokens). The labels
of 73 rows (qwen 37, swift 12, axolotl 9, torchtune 8, hfblog-verdict 7) were corrected from the sources themselves, `data/README.md` there
says how. As they were collected, 2 of 389 verdicts are wrong, 97 % of all measurements lie inside, the worst of tier A is 20.2 % off, and
the medians are 2.9 % for qwen, 7.9 % for swift, 18.0 % for axolotl, 3.1 % for torchtune.

![Predicted against measured](accuracy.svg)

## Classes

Tier A: configuration, shape and metric are all known. Tier B: one soft spot (an unnamed metric, "about 20 GB").

{classes}

## Families of sources

*Inside*: measurements within the predicted interval; *half-width*: half of that interval, median. *Wrong verdicts*: `fits` for a
run that died, or `does_not_fit` for one that ran, of those where the verdict is not `tight`.

{families}

Cases without an estimate need something that is not modelled yet; the command lists why.

## Beside other estimators

Median absolute error over the cases that the peer can express, with memlint's on the same cases. A case that needs something a
peer has no input for (an adapter, a quantised base, sharding) is one that it cannot express. Predictions are matched to the
metric with the peer's own terms. Run with {versions}.

{beside}

Others were run once on the same {bytes} measurements, each as its documentation says, features without an input left out:

{others}

SimuMax publishes -0.07 to -0.81 % on the eleven Megatron rows of its own release table that are in this collection.

## The ground truth below the estimate

`tests/oracle` traces real `transformers` classes, losses and optimizers on fake CUDA tensors: what each keeps for backward in
every regime, and the peak of every phase of whole training steps. `tests/memory` compares the memory program with that record.

torch.compile runs there as well, up to the generation of code: what AOTAutograd's partitioner keeps, and the buffers of inductor's
schedule (`tests/oracle/compiled.py`). A layer keeps that within 1 % for six families, compiled whole or block by block, with and without
checkpointing; peaks are within 2 %, but for three of the cases. One rule finds it for every family (`memlint/memory/compiled.py`).
"""


def page(results: list[Result]) -> str:
    """The whole page."""
    found: peers.Errors = peers.recorded()["errors"]
    groups = by_group(results)
    return PAGE.format(
        cases=len(results),
        bytes=sum(bool(r.case.bytes) for r in results),
        groups=len(groups),
        classes=_table({name: summarise(r for r in results if holds(r)) for name, holds in CLASSES}),
        families=_table({**{name: summarise(rs) for name, rs in groups.items()}, "all": summarise(results)}),
        versions=", ".join(f"{name} {number}" for name, number in peers.recorded()["versions"].items()),
        beside=_beside(groups, results, found),
        others=_others(),
    )


def _table(summaries: dict[str, Summary]) -> str:
    lines = [
        "| | cases | estimated | compared | median | p90 | worst | bias | inside | half-width | wrong verdicts |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, s in summaries.items():
        figures = (
            f"{s.median:.1%} | {s.p90:.1%} | {s.worst:+.1%} | {s.bias:+.1%} | {s.inside:.0%} | {s.half_width:.1%}"
            if s.compared
            else "- | - | - | - | - | -"
        )
        lines.append(f"| {name} | {s.cases} | {s.expressed} | {s.compared} | {figures} | {s.wrong_verdicts} of {s.judged} |")
    return "\n".join(lines)


def _beside(groups: dict[str, list[Result]], results: list[Result], found: peers.Errors) -> str:
    head = "".join(f" {name} | memlint there |" for name in found)
    lines = [f"| | measurements | memlint |{head}", "|---|---|---|" + "---|---|" * len(found)]
    for name, members in [*groups.items(), ("all", results)]:
        total = sum(bool(r.case.bytes) for r in members)
        if not total:
            continue
        ours = {r.case.id: r.error for r in members if r.error is not None}
        cells = [_cell(list(ours.values()))]
        for theirs in found.values():
            known = [case.id for case in (r.case for r in members) if case.id in theirs]
            cells += [_cell([theirs[id] for id in known]), _cell([ours[id] for id in known if id in ours])]
        lines.append(f"| {name} | {total} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(errors: list[float]) -> str:
    return f"{statistics.median(map(abs, errors)):.1%} ({len(errors)})" if errors else "-"


def _others() -> str:
    lines = ["| estimator | cases expressed | compared | median | p90 | bias |", "|---|---|---|---|---|---|"]
    for peer in peers.recorded()["others"]:
        lines.append(
            f"| {peer['name']} | {peer['expressed']} | {peer['compared']} "
            f"| {peer['median']} % | {peer['p90']} % | {peer['bias']:+} % |"
        )
    return "\n".join(lines)
