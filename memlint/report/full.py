"""The report for people: the line with carets, why, what the memory consists of, and what each fix would do."""

from __future__ import annotations

from collections.abc import Iterator

from memlint.report.breakdown import component_rows, interval
from memlint.report.excerpt import error_line, excerpts
from memlint.report.result import CheckResult, Remedy
from memlint.report.style import SEVERITY_COLOURS, Style
from memlint.report.text import plain, plural, size
from memlint.rules.finding import Confidence, Finding, Safety, Severity

HOW = {
    Safety.SAFE: ("memlint --fix applies it", "to be made by hand"),
    Safety.UNSAFE: ("changes the training; memlint --unsafe-fixes applies it", "changes the training; to be made by hand"),
    Safety.SUGGEST: ("for you to decide", "for you to decide"),
}
"""Who makes a fix: where memlint can write it, and where it cannot."""


def render(result: CheckResult, style: Style) -> str:
    """Every finding, what could not be read, and one closing line that counts what is and is not shown."""
    blocks = ["\n".join(_finding(finding, result, style)) for finding in result.findings]
    blocks += [error_line(error, style) for error in result.errors]
    notes = [f"{style.paint('note', '1;36')}: {plain(note)}" for note in result.notes]
    if notes:
        blocks.append("\n".join(notes))
    return "\n\n".join([*blocks, summary_line(result, style)]) + "\n"


def _finding(finding: Finding, result: CheckResult, style: Style) -> Iterator[str]:
    colour = SEVERITY_COLOURS[finding.severity.value]
    head = style.paint(f"{finding.severity.value}[{finding.code}]", colour)
    guess = " (a guess)" if finding.confidence is Confidence.GUESSED else ""
    yield f"{head} {finding.name}{guess}: {style.bold(plain(finding.message))}"
    labels = [(label.span, plain(label.text)) for label in finding.labels]
    yield from excerpts(finding.span, labels, result.lines, style, colour)
    gutter = " " * (max(len(str(span.line)) for span in finding.spans) + 1)
    note = f"{gutter}{style.link('=')} "
    assessment = result.breakdowns.get(finding.fingerprint)
    amount = assessment.needed if assessment else None
    if assessment and assessment.estimate and amount:
        phase = assessment.estimate.peak_phase.replace("_", " ")
        room = f" of {size(assessment.gpu.capacity_bytes)} on {assessment.gpu.name}" if assessment.gpu else ""
        yield f"{note}{style.bold('memory')}: {interval(amount, style)}{room}, peak in {phase}"
        yield from (f"{gutter}    {row}" for row in component_rows(assessment.estimate, style))
        yield f"{note}{style.bold('plan')}: memlint estimate {plain(assessment.run.path)}"
    for remedy in result.remedies_of(finding):
        written, by_hand = HOW[remedy.fix.safety]
        how = written if remedy.edits else by_hand
        yield f"{note}{style.bold('fix')}: {plain(remedy.fix.title)}{_effect(remedy, style)} ({how})"
    yield f"{note}{style.bold('help')}: memlint rule {finding.code}"


def _effect(remedy: Remedy, style: Style) -> str:
    if remedy.before_bytes is None or remedy.after_bytes is None:
        return ""
    return f": {size(remedy.before_bytes)} {style.arrow} {size(remedy.after_bytes)}"


def summary_line(result: CheckResult, style: Style) -> str:
    """`Found 2 errors and 1 warning in 3 files (4 runs). 1 suppressed, 2 files excluded.`"""
    parts = [
        plural(result.count(severity), word)
        for severity, word in ((Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.INFO, "note"))
        if result.count(severity)
    ]
    where = f"in {plural(result.files, 'file')} ({plural(len(result.assessments), 'training run')})"
    if parts:
        found = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
        line = style.bold(f"Found {found} {where}.")
    else:
        line = style.paint(f"No findings {where}.", "32" if not result.errors else "1")
    more = [
        f"{count} {words}"
        for count, words in (
            (sum(f.confidence is Confidence.GUESSED for f in result.findings), "guessed"),
            (result.fixed, "fixed"),
            (len(result.errors), "unreadable"),
            (len(result.suppressed), "suppressed"),
            (result.excluded, "excluded"),
        )
        if count
    ]
    return f"{line} {', '.join(more).capitalize()}." if more else line
