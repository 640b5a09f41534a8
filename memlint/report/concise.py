"""`path:line:column: CODE message`, one finding a line: what editors and `grep` read."""

from __future__ import annotations

from memlint.report.excerpt import place
from memlint.report.result import CheckResult
from memlint.report.style import SEVERITY_COLOURS, Style
from memlint.report.text import plain


def render(result: CheckResult, style: Style) -> str:
    """The findings, then what could not be read."""
    lines = [
        f"{place(finding.span)}: {style.paint(finding.code, SEVERITY_COLOURS[finding.severity.value])} {plain(finding.message)}"
        for finding in result.findings
    ]
    lines += [f"{plain(e.path)}:{e.line}:{e.column}: {style.paint('error', '1;31')} {plain(e.message)}" for e in result.errors]
    return "".join(line + "\n" for line in lines)
