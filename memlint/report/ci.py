"""Formats that CI services read: GitHub workflow commands, GitLab code quality, JUnit XML, reviewdog's rdjson."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memlint.report.result import CheckResult, gravest_first, relative
from memlint.report.style import Style
from memlint.report.text import github_data, github_property, plain, xml
from memlint.rules.finding import Finding
from memlint.source import ReadError, Span
from memlint.typed import Any

DOCUMENTATION = "https://pypi.org/project/gpu-memlint/"

# Each service has words of its own for the three severities.
GITHUB = {"error": "error", "warning": "warning", "info": "notice"}
GITLAB = {"error": "critical", "warning": "major", "info": "info"}
RDJSON = {"error": "ERROR", "warning": "WARNING", "info": "INFO"}


def message(finding: Finding) -> str:
    """The message for services that know nothing of notebook cells: there the place is said in words."""
    cell = f"cell {finding.span.cell}, line {finding.span.line}: " if finding.span.cell else ""
    return plain(cell + finding.message)


def file_span(span: Span) -> Span:
    """A place as a line of the file; places in a notebook cell fall back to the file's first line."""
    return Span(span.path, 1) if span.cell else span


def render_github(result: CheckResult, style: Style) -> str:
    """Annotations, the gravest first, because GitHub shows ten of a kind per step."""
    lines = []
    for finding in gravest_first(result.findings):
        span = file_span(finding.span)
        properties = {"file": relative(span.path), "line": str(span.line), "col": str(span.column)}
        if span.end_line and span.end_line >= span.line:
            properties["endLine"] = str(span.end_line)
        if span.end_column and span.end_line in (0, span.line):
            properties["endColumn"] = str(span.end_column)
        properties["title"] = f"memlint {finding.code} {finding.name}"
        lines.append(_command(GITHUB[finding.severity.value], properties, message(finding)))
    for error in result.errors:
        properties = {"file": relative(error.path), "line": str(error.line), "title": "memlint cannot read this file"}
        lines.append(_command("error", properties, plain(error.message)))
    return "".join(line + "\n" for line in lines)


def _command(kind: str, properties: dict[str, str], text: str) -> str:
    joined = ",".join(f"{name}={github_property(plain(value))}" for name, value in properties.items())
    return f"::{kind} {joined}::{github_data(text)}"


def render_gitlab(result: CheckResult, style: Style) -> str:
    """A code quality report (an array of issues with `fingerprint`, `location.path` and `location.lines.begin`)."""
    issues: list[dict[str, Any]] = []
    for finding in result.findings:
        span = file_span(finding.span)
        issues.append(
            {
                "description": f"{finding.code} {message(finding)}",
                "check_name": finding.code,
                "fingerprint": finding.fingerprint or f"{finding.code}:{span.path}:{span.line}:{span.column}",
                "severity": GITLAB[finding.severity.value],
                "location": {
                    "path": relative(span.path),
                    "lines": {"begin": span.line, "end": max(span.end_line, span.line)},
                },
            }
        )
    for error in result.errors:
        issues.append(
            {
                "description": f"cannot read: {plain(error.message)}",
                "check_name": "unreadable",
                "fingerprint": f"unreadable:{relative(error.path)}",
                "severity": "blocker",
                "location": {"path": relative(error.path), "lines": {"begin": error.line, "end": error.line}},
            }
        )
    return json.dumps(issues, indent=2) + "\n"


def render_junit(result: CheckResult, style: Style) -> str:
    """One test suite per file with one failed test per finding; one passed test when there is nothing to say.

    As Jenkins' `junit-10.xsd` has it: a test case takes no line and no column.
    """
    by_file: dict[str, list[Finding | ReadError]] = {}
    for finding in result.findings:
        by_file.setdefault(finding.span.path, []).append(finding)
    for error in result.errors:
        by_file.setdefault(error.path, []).append(error)
    failed, broken = len(result.findings), len(result.errors)
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<testsuites name="memlint" tests="{max(failed + broken, 1)}" failures="{failed}" errors="{broken}">',
    ]
    for path, entries in by_file.items():
        name = xml(relative(path))
        errors = sum(isinstance(entry, ReadError) for entry in entries)
        lines.append(f'  <testsuite name="{name}" tests="{len(entries)}" failures="{len(entries) - errors}" errors="{errors}">')
        for entry in entries:
            lines += _junit_case(entry, name)
        lines.append("  </testsuite>")
    if not by_file:
        lines.append('  <testsuite name="memlint" tests="1" failures="0" errors="0">')
        lines.append('    <testcase name="no findings" classname="memlint"/>\n  </testsuite>')
    lines.append("</testsuites>")
    return "\n".join(lines) + "\n"


def _junit_case(entry: Finding | ReadError, classname: str) -> Sequence[str]:
    if isinstance(entry, ReadError):
        name, kind, text, line, column = "unreadable", "error", plain(entry.message), entry.line, entry.column
    else:
        span = file_span(entry.span)
        name, kind, text, line, column = entry.code, "failure", message(entry), span.line, span.column
    return (
        f'    <testcase name="{xml(name)}" classname="{classname}">',
        f'      <{kind} message="{xml(text)}">{xml(f"line {line}, column {column}: {text}")}</{kind}>',
        "    </testcase>",
    )


def render_rdjson(result: CheckResult, style: Style) -> str:
    """The Reviewdog Diagnostic Format, with the edits of fixes as suggestions. Its columns count UTF-8 bytes."""
    diagnostics: list[dict[str, Any]] = []
    for finding in result.findings:
        span = file_span(finding.span)
        diagnostic: dict[str, Any] = {
            "message": message(finding),
            "location": {"path": relative(span.path), "range": _byte_range(span, result)},
            "severity": RDJSON[finding.severity.value],
            "code": {"value": finding.code, "url": DOCUMENTATION},
        }
        suggestions = [
            {"range": _byte_range(edit.span, result), "text": edit.replacement}
            for remedy in result.remedies_of(finding)[:1]
            for edit in remedy.edits
            if edit.span.path == span.path
        ]
        if suggestions:
            diagnostic["suggestions"] = suggestions
        diagnostics.append(diagnostic)
    for error in result.errors:
        diagnostics.append(
            {
                "message": plain(error.message),
                "location": {
                    "path": relative(error.path),
                    "range": {"start": {"line": error.line, "column": error.column}},
                },
                "severity": "ERROR",
            }
        )
    document = {"source": {"name": "memlint", "url": DOCUMENTATION}, "diagnostics": diagnostics}
    return json.dumps(document, indent=2) + "\n"


def _byte_range(span: Span, result: CheckResult) -> dict[str, Any]:
    lines = result.lines(span)

    def position(line: int, column: int) -> dict[str, int]:
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        return {
            "line": line,
            "column": len(text[: column - 1].encode("utf-8", "surrogatepass")) + 1 if text else column,
        }

    found = {"start": position(span.line, span.column)}
    if span.end_column:
        found["end"] = position(span.end_line or span.line, span.end_column)
    return found
