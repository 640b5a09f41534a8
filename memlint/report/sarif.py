"""SARIF 2.1.0, for GitHub code scanning and other services.

Relative URIs below `%SRCROOT%` (absolute ones break on every other machine), every rule with its page as help, fixes as
replacements, and a fingerprint of our own (`memlint/v1`): `primaryLocationLineHash` belongs to the upload action.
"""

from __future__ import annotations

import json
from urllib.parse import quote

from memlint import __version__
from memlint.report.ci import DOCUMENTATION, file_span, message
from memlint.report.result import CheckResult, Remedy, relative
from memlint.report.style import Style
from memlint.report.text import plain
from memlint.rules.catalogue import load_rules
from memlint.rules.finding import Finding
from memlint.rules.rule import Rule
from memlint.source import ReadError, Span
from memlint.typed import Any

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}
PRECISION = {"proved": "very-high", "bounded": "high", "guessed": "medium"}


def render(result: CheckResult, style: Style) -> str:
    """One run with all rules, the findings that count, and the suppressed ones marked as such."""
    rules = load_rules()
    index = {rule.code: position for position, rule in enumerate(rules)}
    results = [_result(finding, result, index) for finding in result.findings]
    for finding in result.suppressed:
        suppression = {"kind": "inSource", **({"justification": plain(finding.reason)} if finding.reason else {})}
        results.append({**_result(finding, result, index), "suppressions": [suppression]})
    document = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "memlint",
                        "version": __version__,
                        "semanticVersion": __version__,
                        "informationUri": DOCUMENTATION,
                        "rules": [_rule(rule) for rule in rules],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "The folder memlint was started in."}}},
                "invocations": [
                    {
                        "executionSuccessful": not result.errors,
                        "toolExecutionNotifications": [_notification(error) for error in result.errors],
                    }
                ],
                "results": results,
            }
        ],
    }
    return json.dumps(document, indent=2, default=str) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.name.replace("-", " ")},
        "fullDescription": {"text": rule.summary},
        "help": {"text": rule.page, "markdown": rule.page},
        "helpUri": DOCUMENTATION,
        "defaultConfiguration": {"level": LEVELS[rule.severity.value]},
        "properties": {"tags": ["gpu-memory"], "problem.severity": _problem_severity(rule.severity.value)},
    }


def _problem_severity(severity: str) -> str:
    """GitHub's words for it: error, warning, recommendation."""
    return "recommendation" if severity == "info" else severity


def _result(finding: Finding, result: CheckResult, index: dict[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ruleId": finding.code,
        "level": LEVELS[finding.severity.value],
        "message": {"text": message(finding)},
        "locations": [_location(finding.span)],
        "partialFingerprints": {"memlint/v1": finding.fingerprint},
        "properties": {"precision": PRECISION[finding.confidence.value]},
    }
    if finding.code in index:
        found["ruleIndex"] = index[finding.code]
    if finding.labels:
        found["relatedLocations"] = [
            {"id": number, **_location(label.span), "message": {"text": plain(label.text)}}
            for number, label in enumerate(finding.labels)
        ]
    fixes = [_fix(remedy) for remedy in result.remedies_of(finding) if remedy.edits]
    if fixes:
        found["fixes"] = fixes
    return found


def _location(span: Span) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": _artifact(span.path), "region": _region(file_span(span))}}


def _artifact(path: str) -> dict[str, str]:
    shown = relative(path)
    uri = quote(shown)
    outside = shown.startswith(("/", "../")) or ":" in shown.split("/")[0]
    return {"uri": uri} if outside else {"uri": uri, "uriBaseId": "%SRCROOT%"}


def _region(span: Span) -> dict[str, int]:
    region = {"startLine": span.line, "startColumn": span.column}
    if span.end_line and span.end_line != span.line:
        region["endLine"] = span.end_line
    if span.end_column:
        region["endColumn"] = span.end_column
    return region


def _fix(remedy: Remedy) -> dict[str, Any]:
    changes: dict[str, list[dict[str, Any]]] = {}
    for edit in remedy.edits:
        replacement = {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.replacement}}
        changes.setdefault(edit.span.path, []).append(replacement)
    return {
        "description": {"text": f"{plain(remedy.fix.title)} ({remedy.fix.safety.value})"},
        "artifactChanges": [
            {"artifactLocation": _artifact(path), "replacements": replacements} for path, replacements in changes.items()
        ],
    }


def _notification(error: ReadError) -> dict[str, Any]:
    return {
        "level": "error",
        "message": {"text": plain(error.message)},
        "locations": [_location(Span(error.path, error.line, error.column))],
    }
