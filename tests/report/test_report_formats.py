"""Every format of `memlint check` on one hand-made result: the fields that its readers require, and escaping."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from memlint.report import FORMATS, render
from memlint.report.result import CheckResult
from memlint.report.style import Style


def rendered(name: str, result: CheckResult) -> str:
    return render(name, result, Style())


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_lets_control_characters_of_a_linted_file_through(name: str, result: CheckResult) -> None:
    text = rendered(name, result)
    assert "\x1b" not in text
    if name not in ("json", "jsonl"):  # JSON consumers get the real text, with every control character as \\uXXXX
        assert "\u202e" not in text


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_renders_an_empty_result(name: str) -> None:
    assert "Traceback" not in rendered(name, CheckResult())


def test_concise_is_one_line_a_finding_that_errorformat_reads(result: CheckResult) -> None:
    lines = rendered("concise", result).splitlines()
    assert lines[0] == "train.py:4:5: MEM001 needs 39.5 GiB, the card has 23.5 GiB"
    assert len(lines) == 3
    assert all(re.match(r"[^:]+:\d+:\d+: \S", line) for line in lines)


def test_full_shows_carets_breakdown_and_what_a_fix_does(result: CheckResult) -> None:
    text = rendered("full", result)
    assert "error[MEM001] does-not-fit: needs 39.5 GiB, the card has 23.5 GiB" in text
    line = next(row for row in text.splitlines() if "per_device_train_batch_size=16," in row)
    carets = text.splitlines()[text.splitlines().index(line) + 1]
    # The caret run covers exactly the 30 characters `per_device_train_batch_size=16`.
    assert carets.count("^") == 30
    assert line.index("per_device") == carets.index("^")
    assert re.search(r"activations +20\.0 GiB +█", text)
    assert "turn on gradient checkpointing: 42.5 GiB → 17.8 GiB (memlint --fix applies it)" in text
    assert "Found 1 error and 1 note in 2 files (1 training run). 1 unreadable, 1 suppressed." in text
    assert "error: broken.yaml:3:7: not valid YAML" in text


def test_full_colours_only_when_asked(result: CheckResult) -> None:
    assert "\x1b[1;31m" in render("full", result, Style(colour=True))


def test_json_is_check_v1(result: CheckResult) -> None:
    document = json.loads(rendered("json", result))
    assert document["schema"] == "memlint.check.v1"
    first = document["findings"][0]
    keys = [
        "code",
        "name",
        "severity",
        "confidence",
        "message",
        "path",
        "line",
        "column",
        "end_line",
        "end_column",
        "labels",
        "fixes",
        "fingerprint",
    ]
    assert list(first) == keys
    assert (first["line"], first["column"], first["end_line"], first["end_column"]) == (4, 5, 4, 35)
    assert first["fixes"][0]["changes"] == {"checkpointing.enabled": True}
    assert first["fixes"][0]["needed_bytes_after"] == int(17.8 * 2**30)
    assert document["suppressed"][0]["reason"] == "80 GB cards"
    assert document["summary"]["errors"] == 1
    assert document["errors"] == [{"path": "broken.yaml", "line": 3, "column": 7, "message": "not valid YAML"}]


def test_jsonl_has_one_document_a_line(result: CheckResult) -> None:
    lines = [json.loads(line) for line in rendered("jsonl", result).splitlines()]
    assert [line.get("code") for line in lines] == ["MEM001", "MEM040", None]


def test_github_commands_cannot_be_forged(result: CheckResult) -> None:
    lines = rendered("github", result).splitlines()
    assert lines[0] == (
        "::error file=train.py,line=4,col=5,endLine=4,endColumn=35,title=memlint MEM001 does-not-fit"
        "::needs 39.5 GiB, the card has 23.5 GiB"
    )
    assert [line.split(" ")[0] for line in lines] == ["::error", "::notice", "::error"]
    assert "%250A::error::" in lines[1]


def test_gitlab_has_the_fields_of_a_code_quality_report(result: CheckResult) -> None:
    issues = json.loads(rendered("gitlab", result))
    for issue in issues:
        assert {"description", "check_name", "fingerprint", "severity", "location"} <= set(issue)
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert isinstance(issue["location"]["lines"]["begin"], int)
        assert not issue["location"]["path"].startswith(("/", "./"))
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)


def test_junit_counts_and_escapes(result: CheckResult) -> None:
    root = ElementTree.fromstring(rendered("junit", result))
    assert root.tag == "testsuites"
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "2", "1")
    suites = {suite.get("name"): suite for suite in root}
    assert set(suites) == {"train.py", "broken.yaml"}
    assert [case.get("name") for case in suites["train.py"]] == ["MEM001", "MEM040"]
    assert "<b>@all</b>" in (suites["train.py"][1][0].get("message") or "")


def test_junit_of_a_clean_run_passes_one_test() -> None:
    root = ElementTree.fromstring(rendered("junit", CheckResult(files=1)))
    assert (root.get("tests"), root.get("failures")) == ("1", "0")


def test_rdjson_ranges_count_bytes(result: CheckResult) -> None:
    document = json.loads(rendered("rdjson", result))
    assert document["source"]["name"] == "memlint"
    first, second = document["diagnostics"][:2]
    assert first["severity"] == "ERROR"
    assert first["code"]["value"] == "MEM001"
    assert first["location"]["range"] == {"start": {"line": 4, "column": 5}, "end": {"line": 4, "column": 35}}
    assert first["suggestions"][0]["text"] == ",\n    gradient_checkpointing=True"
    # Line 5 up to column 46 holds `größer`: two characters of two bytes each, so the end moves by two.
    assert second["location"]["range"] == {"start": {"line": 5, "column": 27}, "end": {"line": 5, "column": 48}}


def test_markdown_shows_hostile_text_as_text(result: CheckResult) -> None:
    text = rendered("markdown", result)
    row = next(line for line in text.splitlines() if "MEM040" in line)
    assert row.count(" | ") == 4  # no cell was split by the pipe in the message
    assert "&lt;b" in row
    assert "\\@all" in row
    assert "| activations | 20.0 GiB |" in text


def test_sarif_has_what_code_scanning_needs(result: CheckResult) -> None:
    document = json.loads(rendered("sarif", result))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(rule["id"] for rule in rules)
    for rule in rules:
        assert rule["help"]["markdown"]
        assert rule["fullDescription"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    first, second, silenced = run["results"]
    location = first["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
    assert location["region"] == {"startLine": 4, "startColumn": 5, "endColumn": 35}
    assert first["partialFingerprints"] == {"memlint/v1": "0123456789abcdef"}
    assert "primaryLocationLineHash" not in first["partialFingerprints"]
    assert rules[first["ruleIndex"]]["id"] == "MEM001"
    replacement = first["fixes"][0]["artifactChanges"][0]["replacements"][0]
    assert replacement["insertedContent"]["text"] == ",\n    gradient_checkpointing=True"
    assert first["relatedLocations"][0]["message"]["text"] == "32-bit Adam states"
    assert second["level"] == "note"
    assert silenced["suppressions"] == [{"kind": "inSource", "justification": "80 GB cards"}]
    assert run["invocations"][0]["executionSuccessful"] is False
    _required_fields(document)


REQUIRED: dict[str, set[str]] = {
    "runs": {"tool"},
    "tool": {"driver"},
    "driver": {"name"},
    "rules": {"id"},
    "results": {"message"},
    "invocations": {"executionSuccessful"},
    "toolExecutionNotifications": {"message"},
    "fixes": {"artifactChanges"},
    "artifactChanges": {"artifactLocation", "replacements"},
    "replacements": {"deletedRegion"},
    "suppressions": {"kind"},
    "help": {"text"},
    "shortDescription": {"text"},
    "fullDescription": {"text"},
}
"""The `required` members of the objects we write, from the OASIS sarif-schema-2.1.0.json."""


def _required_fields(value: Any, name: str = "") -> None:
    if isinstance(value, list):
        for item in value:
            _required_fields(item, name)
    elif isinstance(value, dict):
        assert REQUIRED.get(name, set()) <= set(value), name
        for key, item in value.items():
            _required_fields(item, key)
