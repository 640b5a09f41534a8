"""The index of memlint's own pages says what the pages say."""

from __future__ import annotations

from pathlib import Path

from memlint.rules import index
from memlint.rules.catalogue import load_rules
from memlint.rules.page import read_rule
from tools.index_rules import text


def test_the_index_is_of_the_pages_as_they_are() -> None:
    assert Path(index.__file__).read_text(encoding="utf-8") == text(), "changed since: run python tools/index_rules.py"


def test_a_rule_of_the_index_is_the_rule_of_its_page() -> None:
    assert [rule.code for rule in load_rules()][:2] == ["MEM001", "MEM002"]
    for rule in load_rules():
        assert rule == read_rule(rule.path)
