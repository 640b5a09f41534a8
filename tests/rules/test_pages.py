"""Every rule page: its form, its conditions, and its cases through the real pipeline."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from memlint.cli.examine import examine
from memlint.cli.session import Session, gather
from memlint.config import Configs, Settings
from memlint.config_file import size_in_bytes
from memlint.report import render
from memlint.report.result import CheckResult
from memlint.report.style import Style
from memlint.rules.catalogue import load_rules
from memlint.rules.finding import Severity
from memlint.rules.page import SECTIONS
from memlint.rules.rule import Rule
from memlint.rules.team import verify
from tests.rules.pages import Case, cases, replace_expected

RULES = load_rules()
CASES = [(rule, case) for rule in RULES for case in cases(rule.page)]
UPDATE = bool(os.environ.get("MEMLINT_UPDATE_PAGES"))


def identity(value: object) -> str:
    return value.code if isinstance(value, Rule) else f"{value.kind}" if isinstance(value, Case) else ""


@pytest.mark.parametrize("rule", RULES, ids=identity)
def test_a_page_has_its_sections_in_order(rule: Rule) -> None:
    headings = re.findall(r"^## (.+)$", rule.page, re.M)
    assert headings == list(SECTIONS)
    assert rule.page.startswith(f"# {rule.name} ({rule.code})\n")
    assert Path(rule.path).name == f"{rule.code}-{rule.name}.md"
    assert rule.summary


@pytest.mark.parametrize("rule", RULES, ids=identity)
def test_a_condition_speaks_only_of_what_exists(rule: Rule) -> None:
    verify(rule)


@pytest.mark.parametrize("rule", RULES, ids=identity)
def test_a_page_has_a_bad_and_a_good_case(rule: Rule) -> None:
    kinds = [case.kind for case in cases(rule.page)]
    assert "bad" in kinds and "good" in kinds


def test_codes_and_names_are_unique() -> None:
    identities = [identity for rule in RULES for identity in (rule.code, rule.name, *rule.aliases)]
    assert len(identities) == len(set(identities))


def lint(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, select: tuple[str, ...] = ()) -> CheckResult:
    """What `memlint check NAME` with the case's options finds, in a folder of its own."""
    for name, text in {**case.beside, case.name: case.text}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)

    def layer(settings: Settings) -> Settings:
        gpus = int(case.options["gpus"]) if "gpus" in case.options else None
        host = size_in_bytes(case.options["host"]) if "host" in case.options else None
        return settings.with_options("--gpu", gpu=case.options.get("gpu"), gpus=gpus, host_ram=host, select=select or None)

    session = Session(Configs(isolated=True), layer)
    return examine(gather([case.options.get("lint", case.name)], session), session)


@pytest.mark.parametrize(("rule", "case"), [pair for pair in CASES if pair[1].kind == "bad"], ids=identity)
def test_bad(rule: Rule, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = lint(case, tmp_path, monkeypatch)
    assert not result.errors
    shown = render("concise", CheckResult(tuple(f for f in result.findings if f.code == rule.code)), Style())
    if UPDATE:
        replace_expected(Path(rule.path), case, shown)
        return
    assert case.expected, f"the page shows nothing; memlint says:\n{render('concise', result, Style())}"
    assert_same(shown, case.expected)


@pytest.mark.parametrize(("rule", "case"), [pair for pair in CASES if pair[1].kind == "good"], ids=identity)
def test_good(rule: Rule, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a good case the rule has nothing to say, and neither has any other rule more than a hint."""
    result = lint(case, tmp_path, monkeypatch)
    assert not result.errors
    assert result.assessments, "nothing was recognised as a training run"
    assert [f for f in result.findings if f.code == rule.code or f.severity is not Severity.INFO] == []


@pytest.mark.parametrize(("rule", "case"), [pair for pair in CASES if pair[1].kind == "bad"], ids=identity)
def test_a_comment_on_its_line_silences_a_bad_case(
    rule: Rule, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [line.split(":")[:2] for line in (case.expected or "").splitlines()]
    if rule.code.startswith("MEM2"):
        assert places  # memlint's own findings about comments and files are not silenced by comments
        return
    texts = {**case.beside, case.name: case.text}
    for path, line in places:
        lines = texts[path].splitlines()
        sign = "//" if path.endswith(".json") else "#"
        if lines[int(line) - 1].endswith("\\"):  # nothing may follow a continuation
            lines.insert(0, f"{sign} memlint: file-ignore[{rule.code}] a reason")
        else:
            lines[int(line) - 1] += f"  {sign} memlint: ignore[{rule.code}] a reason"
        texts[path] = "\n".join(lines) + "\n"
    silenced = replace(case, text=texts.pop(case.name), beside=texts)
    result = lint(silenced, tmp_path, monkeypatch)
    assert rule.code not in {finding.code for finding in result.findings}
    assert {finding.reason for finding in result.suppressed if finding.code == rule.code} == {"a reason"}


NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
TOLERANCE = 0.05


def assert_same(shown: str, expected: str) -> None:
    """The same text at the same places; figures of an estimate may move by 5 % before a page must be written anew."""
    head = re.compile(r"^(\S+:\d+:\d+: \w+) ", re.M)
    assert head.findall(shown) == head.findall(expected)
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", expected)
    for now, then in zip(NUMBER.findall(shown), NUMBER.findall(expected), strict=True):
        assert abs(float(now) - float(then)) <= TOLERANCE * float(then) + 0.11, (now, then, shown)
