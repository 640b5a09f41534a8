"""The tables that people read: families, the issue's classes, and the rows of one family."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from benchmarks.accuracy.score import Result, Summary, summarise

GIB = 2**30
HEADER = (
    f"{'family':<18}{'cases':>6}{'expr.':>6}{'bytes':>6}{'median':>8}{'p90':>8}{'worst':>9}{'bias':>8}"
    f"{'inside':>8}{'±half':>7}{'wrong':>9}"
)

CLASSES: tuple[tuple[str, Callable[[Result], bool]], ...] = (
    ("allocated A hf 1gpu", lambda r: _is(r, "allocated") and _hugging_face(r) and _single(r)),
    ("allocated A", lambda r: _is(r, "allocated")),
    ("reserved A", lambda r: _is(r, "reserved")),
    ("device A", lambda r: _is(r, "device")),
    ("all tier A", lambda r: r.case.tier == "A"),
    ("all tier B", lambda r: r.case.tier == "B"),
    ("fms, 2 and 4 GPUs", lambda r: r.case.group == "fms" and not _single(r)),
    ("sharded families", lambda r: r.case.group in SHARDED and (r.case.group != "fms" or not _single(r))),
)
"""The classes for which targets are set."""


SHARDED = ("fsdpqlora", "fms", "torchtune", "titan", "stas", "simumax")
"""The families whose jobs of several GPUs have a target of their own, all together (torchtune's rows of one GPU are among them)."""


def _is(result: Result, metric: str) -> bool:
    return result.case.tier == "A" and result.case.metric == metric


def _hugging_face(result: Result) -> bool:
    return result.case.facts.get("framework.name") in ("hf_trainer", "transformers")


def _single(result: Result) -> bool:
    facts = result.case.facts
    return facts.get("parallel.gpus", 1) * facts.get("parallel.nodes", 1) == 1


def by_group(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results by family, in alphabetical order."""
    ordered = sorted(results, key=lambda r: r.case.group)
    return {group: list(members) for group, members in groupby(ordered, key=lambda r: r.case.group)}


def line(name: str, summary: Summary) -> str:
    """One line of the table of families."""
    text = f"{name:<18}{summary.cases:>6}{summary.expressed:>6}{summary.compared:>6}"
    if summary.compared:
        text += (
            f"{summary.median:>8.1%}{summary.p90:>8.1%}{summary.worst:>+9.1%}{summary.bias:>+8.1%}"
            f"{summary.inside:>8.0%}{summary.half_width:>7.1%}"
        )
    else:
        text += f"{'-':>8}{'-':>8}{'-':>9}{'-':>8}{'-':>8}{'-':>7}"
    return text + f"{f'{summary.wrong_verdicts}/{summary.judged}':>9}"


def families(results: list[Result]) -> str:
    """Every family, then the classes that have targets, then the reasons why cases have no estimate."""
    lines = [HEADER, "-" * len(HEADER)]
    lines += [line(group, summarise(members)) for group, members in by_group(results).items()]
    lines += ["-" * len(HEADER), line("all", summarise(results)), ""]
    lines += [line(name, summarise(r for r in results if holds(r))) for name, holds in CLASSES]
    reasons: dict[str, int] = {}
    for result in results:
        if result.why_not:
            reasons[result.why_not] = reasons.get(result.why_not, 0) + 1
    if reasons:
        lines += ["", "without an estimate:"]
        lines += [f"{count:>5}  {reason}" for reason, count in sorted(reasons.items(), key=lambda r: -r[1])]
    return "\n".join(lines)


def rows(results: list[Result]) -> str:
    """Each case of a family on a line."""
    lines = []
    for result in results:
        case, facts = result.case, result.case.facts
        head = f"{case.id[:38]:<39}{case.tier:<2}{(case.metric or case.kind)[:9]:<10}"
        if result.predicted is None:
            lines.append(head + result.why_not)
            continue
        predicted = result.predicted
        numbers = f"{predicted.expected / GIB:>8.2f}"
        if result.error is not None:
            mark = " " if result.inside else "!"
            numbers += f"{case.bytes / GIB:>8.2f}{result.error:>+8.1%}{mark}"
        keys = ("precision", "adapter.method", "quantization.method", "parallel.strategy", "parallel.gpus")
        what = (
            f"{result.phase[:9]:<10}{result.verdict:<13}{facts.get('model.id') or 'inline'}"
            f" b{facts.get('batch.micro_batch_size')} s{facts.get('batch.sequence_length')} "
            + " ".join(str(facts.get(key)) for key in keys)
        )
        lines.append(f"{head}{numbers}  {what}")
    return "\n".join(lines)
