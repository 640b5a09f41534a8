"""Fingerprints that survive moving code, and the baseline that is kept by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.config import ConfigError
from memlint.rules.baseline import Baseline, read, write
from memlint.rules.finding import Confidence, Finding, Severity, ordered, with_fingerprints
from memlint.source import Kind, Source, Span

TEXT = "model = load()\nargs = Args(batch=8)\nmore = Args(batch=8)\ntrain()\n"


def finding(line: int, code: str = "MEM010", message: str = "message", path: str = "train.py") -> Finding:
    return Finding(code, "name", Severity.WARNING, Confidence.PROVED, message, Span(path, line), logical="batch.size")


def named(findings: list[Finding], text: str = TEXT) -> list[Finding]:
    source = Source("train.py", Kind.PYTHON, text)
    return with_fingerprints(findings, lambda path: source if path == "train.py" else None, lambda path: path)


@given(st.integers(0, 30))
def test_fingerprints_survive_a_shift_of_lines(shift: int) -> None:
    before = named([finding(2), finding(3), finding(4)])
    after = named([finding(2 + shift), finding(3 + shift), finding(4 + shift)], "# comment\n" * shift + TEXT)
    assert [f.fingerprint for f in before] == [f.fingerprint for f in after]


@pytest.mark.parametrize(
    "line", ["    args = Args(batch=8)", "args  =  Args(batch=8),", "args = Args(batch=8)  # memlint: ignore[MEM001]"]
)
def test_fingerprints_survive_reformatting(line: str) -> None:
    (before,), (after,) = named([finding(1)], "args = Args(batch=8)\n"), named([finding(1)], line + "\n")
    assert before.fingerprint == after.fingerprint


def test_fingerprints_do_not_depend_on_the_message() -> None:
    """Figures in a message change with every release of the estimator."""
    (before,), (after,) = named([finding(2, message="31.2 GiB")]), named([finding(2, message="31.3 GiB")])
    assert before.fingerprint == after.fingerprint


def test_fingerprints_tell_findings_apart() -> None:
    found = named([finding(2), finding(3), finding(4), finding(2, "MEM003"), finding(2, path="other.py")])
    assert len({f.fingerprint for f in found}) == 5


def test_a_changed_value_is_another_finding() -> None:
    (before,), (after,) = named([finding(1)], "batch=8\n"), named([finding(1)], "batch=16\n")
    assert before.fingerprint != after.fingerprint


def test_the_same_finding_of_two_launches_counts_once() -> None:
    assert ordered([finding(3), finding(2), finding(3)]) == [finding(2), finding(3)]


def test_baseline_then_lint_is_silent(tmp_path: Path) -> None:
    found = named([finding(2), finding(4)])
    file = tmp_path / "baseline.json"
    write(file, found, lambda path: path, ["train.py"])
    applied = read(file).apply(found, ["train.py"])
    assert (applied.new, applied.stale) == ((), ())
    assert [f.reason for f in applied.known] == ["accepted in the baseline"] * 2


def test_a_fix_and_a_new_violation_do_not_cancel(tmp_path: Path) -> None:
    old, new = named([finding(2)]), named([finding(4)])
    file = tmp_path / "baseline.json"
    write(file, old, lambda path: path, ["train.py"])
    applied = read(file).apply(new, ["train.py"])
    assert applied.new == tuple(new)
    assert [entry.fingerprint for entry in applied.stale] == [old[0].fingerprint]


def test_only_linted_files_can_be_stale(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    write(file, named([finding(2)]), lambda path: path, ["train.py"])
    assert read(file).apply([], ["other.py"]).stale == ()


def test_rewriting_shrinks_and_keeps_reasons_and_other_files(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    one, two = named([finding(2)]), named([finding(4)])
    other = named([finding(1, path="other.py")])
    write(file, [*one, *two, *other], lambda path: path, ["train.py", "other.py"])
    data = json.loads(file.read_text())
    for entry in data["findings"]:
        entry["reason"] = "until the new cluster"
    file.write_text(json.dumps(data))
    write(file, two, lambda path: path, ["train.py"])
    entries = read(file).entries
    assert set(entries) == {two[0].fingerprint, other[0].fingerprint}
    assert {entry.reason for entry in entries.values()} == {"until the new cluster"}


def test_no_file_is_an_empty_baseline(tmp_path: Path) -> None:
    assert read(tmp_path / "gone.json") == Baseline()


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other"}', '{"schema": "memlint.baseline.v1", "findings": [{"x": 1}]}'])
def test_something_else_is_not_a_baseline(tmp_path: Path, text: str) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="not a baseline"):
        read(file)
