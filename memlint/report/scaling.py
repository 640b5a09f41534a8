"""Memory per GPU against the number of GPUs: a chart in the terminal, a table in Markdown, JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memlint.assess import Assessment
from memlint.report.json import dump
from memlint.report.style import Style
from memlint.report.text import GIB, code, markdown, plain
from memlint.scaling import Row
from memlint.source import ReadError

COLUMNS = 40
"""Width of a bar at its longest."""


def document(runs: Iterable[tuple[Assessment, Sequence[Row]]], counts: Sequence[int], errors: Iterable[ReadError]) -> str:
    """`memlint.scaling.v1`: for each run and strategy the bytes that each GPU needs, in the order of `gpus`; null where unknown."""
    found = {
        "schema": "memlint.scaling.v1",
        "gpus": list(counts),
        "runs": [
            {
                "path": assessment.run.path,
                "line": assessment.run.span.line,
                "model": assessment.run.value("model.id"),
                "gpu": assessment.gpu.name if assessment.gpu else None,
                "capacity_bytes": assessment.gpu.capacity_bytes if assessment.gpu else None,
                "why_not": assessment.why_not or None,
                "strategies": [{"name": row.strategy, "needed_bytes": list(row.needed)} for row in rows],
            }
            for assessment, rows in runs
        ],
        "errors": [{"path": error.path, "line": error.line, "message": error.message} for error in errors],
    }
    return dump(found)


def chart(assessment: Assessment, counts: Sequence[int], rows: Sequence[Row], style: Style) -> str:
    """For each strategy a bar per number of GPUs, with a mark where the target card ends."""
    known = [needed for row in rows for needed in row.needed if needed is not None]
    if not known:
        return f"{plain(assessment.run.path)}: nothing to show\n"
    capacity = assessment.gpu.capacity_bytes if assessment.gpu else 0
    scale = max(capacity, min(max(known), 4 * capacity) if capacity else max(known))
    width = max(len(str(count)) for count in counts)
    lines = [style.bold(_title(assessment)), ""]
    for row in rows:
        lines.append(style.bold(row.strategy))
        for count, needed in zip(counts, row.needed, strict=True):
            lines.append(f"  {count:>{width}}  {_bar(needed, scale, capacity, style)}")
        lines.append("")
    return "\n".join(lines) + "\n"


def _title(assessment: Assessment) -> str:
    model = str(assessment.run.value("model.id") or "the model")
    card = f", card: {assessment.gpu.name}" if assessment.gpu else ""
    return plain(f"{model}: memory that each of n GPUs needs{card}")


def _bar(needed: int | None, scale: int, capacity: int, style: Style) -> str:
    if needed is None:
        return style.dim(style.dash)
    bar = style.stack([min(needed, scale)], scale, COLUMNS).ljust(COLUMNS)
    if capacity:
        mark = min(COLUMNS - 1, round(capacity * COLUMNS / scale))
        bar = bar[:mark] + style.mark + bar[mark + 1 :]
    figure = f"{needed / GIB:.1f} GiB"
    return f"{bar}  {figure if not capacity or needed <= capacity else style.paint(figure, '31')}"


def table(assessment: Assessment, counts: Sequence[int], rows: Sequence[Row]) -> str:
    """GiB per GPU; bold where the target card holds it."""
    capacity = assessment.gpu.capacity_bytes if assessment.gpu else 0
    model = code(str(assessment.run.value("model.id") or "the model"))
    card = f" Bold: fits {markdown(assessment.gpu.name)}." if assessment.gpu else ""
    head = f"GiB that each GPU needs, {model}.{card}"
    lines = [head, "", "| GPUs | " + " | ".join(map(str, counts)) + " |", "|---|" + "---:|" * len(counts)]
    for row in rows:
        cells = (_cell(needed, capacity) for needed in row.needed)
        lines.append(f"| {row.strategy} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(needed: int | None, capacity: int) -> str:
    if needed is None:
        return "–"
    figure = f"{needed / GIB:.1f}"
    return f"**{figure}**" if needed <= capacity else figure
