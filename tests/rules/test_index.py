"""The table of all rules in rules/README.md, which is written from the pages (MEMLINT_UPDATE_PAGES=1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memlint.cli.rule import run
from memlint.rules.catalogue import load_rules

README = Path(__file__).parents[2] / "rules" / "README.md"
START, END = "<!-- rules -->\n", "<!-- end of rules -->\n"
RULES = load_rules()


def table() -> str:
    rows = [f"| [{r.code}]({Path(r.path).name}) | {r.name} | {r.severity.value} | {r.headline} |" for r in RULES]
    return "\n".join(["| code | name | severity | what it checks |", "|---|---|---|---|", *rows]) + "\n"


def test_the_table_is_that_of_the_pages() -> None:
    before, _, rest = README.read_text(encoding="utf-8").partition(START)
    shown, _, after = rest.partition(END)
    if os.environ.get("MEMLINT_UPDATE_PAGES"):
        README.write_text(before + START + table() + END + after, encoding="utf-8")
        return
    assert shown == table()


def test_rule_all_prints_every_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--all"]) == 0
    printed = capsys.readouterr().out
    places = [printed.find(rule.page.strip()) for rule in RULES]
    assert -1 not in places and places == sorted(places)


def test_the_list_has_a_line_for_each_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [[r.code, r.name, r.severity.value] for r in RULES]
