"""The versioned JSON of `memlint check`: one document (`memlint.check.v1`), or one line per finding (`jsonl`)."""

from __future__ import annotations

import json

from memlint.report.result import CheckResult, Remedy
from memlint.report.style import Style
from memlint.rules.finding import Finding, Severity
from memlint.source import ReadError, Span
from memlint.typed import Any


def render(result: CheckResult, style: Style) -> str:
    """The whole result as one document."""
    document = {
        "schema": "memlint.check.v1",
        "findings": [_finding(finding, result) for finding in result.findings],
        "suppressed": [{**_finding(finding, result), "reason": finding.reason} for finding in result.suppressed],
        "errors": [read_error(error) for error in result.errors],
        "notes": list(result.notes),
        "summary": {
            "files": result.files,
            "excluded": result.excluded,
            "runs": len(result.assessments),
            "errors": result.count(Severity.ERROR),
            "warnings": result.count(Severity.WARNING),
            "infos": result.count(Severity.INFO),
            "suppressed": len(result.suppressed),
            "fixed": result.fixed,
        },
    }
    return dump(document)


def render_lines(result: CheckResult, style: Style) -> str:
    """One JSON object per line: each finding, then each input that could not be read (`{"error": ...}`)."""
    lines: list[dict[str, Any]] = [_finding(finding, result) for finding in result.findings]
    lines += [{"error": read_error(error)} for error in result.errors]
    return "".join(json.dumps(line, default=str) + "\n" for line in lines)


def dump(document: object) -> str:
    """A document as every `--format json` writes it."""
    return json.dumps(document, indent=2, default=str) + "\n"


def read_error(error: ReadError) -> dict[str, Any]:
    """An input that could not be read."""
    return {"path": error.path, "line": error.line, "column": error.column, "message": error.message}


def place(span: Span) -> dict[str, Any]:
    """A place; `cell` only in notebooks, where lines count inside the cell."""
    found: dict[str, Any] = {
        "path": span.path,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line or span.line,
        "end_column": span.end_column or span.column,
    }
    return {**found, "cell": span.cell} if span.cell else found


def _finding(finding: Finding, result: CheckResult) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "message": finding.message,
        **place(finding.span),
        "labels": [{"text": label.text, **place(label.span)} for label in finding.labels],
        "fixes": [_remedy(remedy) for remedy in result.remedies_of(finding)],
        "fingerprint": finding.fingerprint,
    }


def _remedy(remedy: Remedy) -> dict[str, Any]:
    found: dict[str, Any] = {
        "title": remedy.fix.title,
        "safety": remedy.fix.safety.value,
        "changes": dict(remedy.fix.changes),
    }
    if remedy.after_bytes is not None:
        found["needed_bytes_before"], found["needed_bytes_after"] = remedy.before_bytes, remedy.after_bytes
    if remedy.edits:
        found["edits"] = [{**place(edit.span), "replacement": edit.replacement} for edit in remedy.edits]
    return found
