"""Comments that silence findings: what they cover, and what happens to those that silence nothing."""

from __future__ import annotations

from textwrap import dedent

import pytest

from memlint.assess import Assessment
from memlint.facts import TrainingRun, fixed
from memlint.rules.catalogue import load_rules
from memlint.rules.finding import Confidence, Finding, Label, Severity
from memlint.rules.suppress import Outcome, apply
from memlint.source import Kind, Source, Span

RULES = load_rules()


def finding(line: int, code: str = "MEM010", path: str = "train.py", end: int = 0, labels: tuple[Label, ...] = ()) -> Finding:
    name = next(rule.name for rule in RULES if rule.code == code)
    return Finding(code, name, Severity.WARNING, Confidence.PROVED, "message", Span(path, line, 1, end), labels)


def run_on(text: str, *findings: Finding, kind: Kind = Kind.PYTHON, path: str = "train.py", facts: bool = True) -> Outcome:
    """Suppressions of one file with a training run whose checkpointing is known to be on."""
    source = Source(path, kind, dedent(text))
    run = TrainingRun(path, Span(path, 1), {"checkpointing.enabled": fixed(True)} if facts else {})
    return apply(findings, [path], lambda wanted: source if wanted == path else None, RULES, RULES, [Assessment(run)])


def codes(outcome: Outcome) -> list[tuple[str, int]]:
    return [(f.code, f.span.line) for f in outcome.findings]


def test_a_trailing_comment_speaks_for_its_line() -> None:
    text = """\
        a = 1  # memlint: ignore[MEM010] the card is ours
        b = 2
    """
    outcome = run_on(text, finding(1), finding(2))
    assert codes(outcome) == [("MEM010", 2)]
    assert [f.reason for f in outcome.suppressed] == ["the card is ours"]


@pytest.mark.parametrize("name", ["MEM010", "checkpointing-off", "mem010"])
def test_a_rule_by_code_or_name(name: str) -> None:
    assert codes(run_on(f"a = 1  # memlint: ignore[{name}]\n", finding(1))) == []


def test_another_rule_is_not_silenced() -> None:
    outcome = run_on("a = 1  # memlint: ignore[MEM010]\n", finding(1, "MEM003"), finding(1))
    assert codes(outcome) == [("MEM003", 1)]


def test_several_rules() -> None:
    outcome = run_on("a = 1  # memlint: ignore[MEM010, MEM003] both\n", finding(1, "MEM003"), finding(1))
    assert codes(outcome) == []


def test_alone_on_its_line_it_speaks_for_the_whole_statement() -> None:
    text = """\
        # memlint: ignore[MEM010]
        args = TrainingArguments(
            output_dir="out",
            bf16=True,
        )
        other = 1
    """
    assert codes(run_on(text, finding(4), finding(6))) == [("MEM010", 6)]


def test_inside_a_call_it_speaks_for_the_next_argument() -> None:
    text = """\
        args = TrainingArguments(
            # memlint: ignore[MEM010]
            per_device_train_batch_size=(
                8
            ),
            bf16=True,
        )
    """
    assert codes(run_on(text, finding(4), finding(6))) == [("MEM010", 6)]


def test_before_a_decorated_function_it_speaks_for_all_of_it() -> None:
    text = """\
        # memlint: ignore[MEM010]
        @cache
        def main():
            train()

        train()
    """
    assert codes(run_on(text, finding(4), finding(6))) == [("MEM010", 6)]


def test_a_comment_anywhere_in_the_finding_counts() -> None:
    text = """\
        args = TrainingArguments(
            output_dir="out",
        )  # memlint: ignore[MEM010]
    """
    assert codes(run_on(text, finding(1, end=3))) == []


def test_a_comment_at_a_related_place_counts() -> None:
    text = "BATCH = 8  # memlint: ignore[MEM010]\nargs(BATCH)\n"
    assert codes(run_on(text, finding(2, labels=(Label(Span("train.py", 1), "set here"),)))) == []


def test_file_ignore() -> None:
    assert codes(run_on("# memlint: file-ignore[MEM010] notebook\na = 1\nb = 2\n", finding(2), finding(3))) == []


def test_text_inside_a_string_silences_nothing() -> None:
    assert codes(run_on('a = "# memlint: ignore[MEM010]"\n', finding(1))) == [("MEM010", 1)]


def test_yaml_keys() -> None:
    text = """\
        # memlint: ignore[MEM010]
        datasets:
        - path: x
          type: y
        micro_batch_size: 4  # memlint: ignore[MEM003]
        other: 1
    """
    found = finding(4, path="a.yaml"), finding(5, "MEM003", "a.yaml"), finding(6, path="a.yaml")
    outcome = run_on(text, *found, kind=Kind.YAML, path="a.yaml")
    assert codes(outcome) == [("MEM010", 6)]


def test_json_entries() -> None:
    text = """\
        {
          // memlint: ignore[MEM010]
          "bf16": {
            "enabled": true
          },
          "x": 1
        }
    """
    found = finding(4, path="ds.json"), finding(6, path="ds.json")
    assert codes(run_on(text, *found, kind=Kind.JSON, path="ds.json")) == [("MEM010", 6)]


def test_shell_commands_with_continuations() -> None:
    text = """\
        # memlint: ignore[MEM010]
        python train.py \\
          --bf16 \\
          --batch 8
        python train.py
    """
    found = finding(4, path="run.sh"), finding(5, path="run.sh")
    assert codes(run_on(text, *found, kind=Kind.SHELL, path="run.sh")) == [("MEM010", 5)]


def test_notebook_cells() -> None:
    text = '{"cells": [{"cell_type": "code", "source": ["x = 1\\n", "y = 2  # memlint: ignore[MEM010]"]}]}'
    inside = Finding("MEM010", "x", Severity.WARNING, Confidence.PROVED, "m", Span("a.ipynb", 2, cell=1))
    outside = Finding("MEM010", "x", Severity.WARNING, Confidence.PROVED, "m", Span("a.ipynb", 2, cell=2))
    outcome = run_on(text, inside, outside, kind=Kind.NOTEBOOK, path="a.ipynb")
    assert outcome.findings == (outside,)


def test_a_broken_file_keeps_its_suppressions() -> None:
    assert codes(run_on("def f(:\n    a = 1  # memlint: ignore[MEM010]\n", finding(2))) == []


# Suppressions that do nothing


def test_an_unused_suppression_is_a_finding_with_a_fix() -> None:
    outcome = run_on("a = 1\nb = 2  # memlint: ignore[MEM010] old\n")
    assert codes(outcome) == [("MEM200", 2)]
    (fix,) = outcome.findings[0].fixes
    assert fix.removes == Span("train.py", 2, 8, 2, 37)


def test_a_suppression_of_a_rule_that_could_not_be_decided_is_not_unused() -> None:
    assert codes(run_on("b = 2  # memlint: ignore[MEM010]\n", facts=False)) == []


def test_a_suppression_of_a_rule_that_was_not_run_is_not_unused() -> None:
    source = Source("train.py", Kind.PYTHON, "b = 2  # memlint: ignore[MEM010]\n")
    run = TrainingRun("train.py", Span("train.py", 1), {"checkpointing.enabled": fixed(True)})
    others = [rule for rule in RULES if rule.code != "MEM010"]
    assert apply([], ["train.py"], lambda _: source, RULES, others, [Assessment(run)]).findings == ()


def test_a_file_without_a_training_run_may_have_suppressions() -> None:
    source = Source("lib.py", Kind.PYTHON, "b = 2  # memlint: ignore[MEM010]\n")
    assert apply([], ["lib.py"], lambda _: source, RULES, RULES, []).findings == ()


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("ignore", "name the rules to ignore: ignore[MEM010]"),
        ("ignore[]", "name the rules to ignore: ignore[MEM010]"),
        ("file-ignore", "name the rules to ignore: ignore[MEM010]"),
        ("ignore[MEM999]", "'MEM999' is not a rule; did you mean "),
        ("ignore[checkpoint-off]", "'checkpoint-off' is not a rule; did you mean 'checkpointing-off'?"),
        ("ingore[MEM010]", "memlint does not know 'ingore'; it knows ignore[...]"),
    ],
)
def test_comments_that_are_not_understood(comment: str, message: str) -> None:
    (found,) = run_on(f"a = 1  # memlint: {comment}\n").findings
    assert found.code == "MEM201"
    assert found.message.startswith(message)


@pytest.mark.parametrize("comment", ["gpu=t4", "gpus = 2", "set batch.packing=true"])
def test_settings_are_not_suppressions(comment: str) -> None:
    assert run_on(f"a = 1  # memlint: {comment}\n").findings == ()


def test_own_findings_are_as_their_pages_say() -> None:
    pages = {rule.code: rule for rule in RULES}
    found = [*run_on("a = 1  # memlint: ignore[MEM010]\n").findings, *run_on("a = 1  # memlint: ignore\n").findings]
    assert [f.code for f in found] == ["MEM200", "MEM201"]
    for f in found:
        assert (f.name, f.severity) == (pages[f.code].name, pages[f.code].severity)
