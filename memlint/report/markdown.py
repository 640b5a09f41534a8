"""Markdown for a job summary or a pull-request comment."""

from __future__ import annotations

from memlint.report.breakdown import components, interval
from memlint.report.full import summary_line
from memlint.report.result import CheckResult, gravest_first, relative
from memlint.report.style import Style
from memlint.report.text import code, markdown, size
from memlint.rules.finding import Finding

ICONS = {"error": "🔴", "warning": "🟠", "info": "🔵"}


def render(result: CheckResult, style: Style) -> str:
    """A table of findings, the gravest first, then the memory of each run that has too little."""
    lines = ["## memlint", "", markdown(summary_line(result, Style()))]
    if result.findings:
        lines += ["", "| | Rule | Where | What | Fix |", "|---|---|---|---|---|"]
        lines += [_row(finding, result, style) for finding in gravest_first(result.findings)]
    for error in result.errors:
        lines += ["", f"Cannot read {code(f'{relative(error.path)}:{error.line}')}: {markdown(error.message)}"]
    for finding in result.findings:
        lines += _memory(finding, result)
    lines += ["", *(f"- {markdown(note)}" for note in result.notes)] if result.notes else []
    return "\n".join(lines) + "\n"


def _row(finding: Finding, result: CheckResult, style: Style) -> str:
    cell = f":cell {finding.span.cell}" if finding.span.cell else ""
    where = code(f"{relative(finding.span.path)}{cell}:{finding.span.line}")
    fixes = "<br>".join(
        markdown(remedy.fix.title)
        + (
            f" ({size(remedy.before_bytes)} {style.arrow} {size(remedy.after_bytes)})"
            if remedy.after_bytes and remedy.before_bytes
            else ""
        )
        for remedy in result.remedies_of(finding)
    )
    icon = ICONS[finding.severity.value]
    return f"| {icon} | {finding.code} {finding.name} | {where} | {markdown(finding.message)} | {fixes} |"


def _memory(finding: Finding, result: CheckResult) -> list[str]:
    assessment = result.breakdowns.get(finding.fingerprint)
    amount = assessment.needed if assessment else None
    if assessment is None or assessment.estimate is None or amount is None:
        return []
    room = f" of {size(assessment.gpu.capacity_bytes)} on {markdown(assessment.gpu.name)}" if assessment.gpu else ""
    lines = ["", f"**{code(relative(assessment.run.path))}**: {interval(amount, Style())}{room}", ""]
    lines += ["| Component | At the peak |", "|---|---:|"]
    return lines + [f"| {name} | {size(count)} |" for name, count in components(assessment.estimate)]
