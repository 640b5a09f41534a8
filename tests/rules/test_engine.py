"""Which rules run, what they find on hand-made facts, and pages of a team's own."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from memlint.assess import Assessment, assess
from memlint.config import ConfigError, Settings
from memlint.facts import Fact, Origin, Problem, TrainingRun, choices, default, fixed, unknown
from memlint.gpus import find
from memlint.models import Lookup
from memlint.rules.catalogue import find_rule, load_rules, selected
from memlint.rules.engine import check
from memlint.rules.finding import Confidence, Finding, Safety, Severity
from memlint.rules.page import PageError, read_rule
from memlint.rules.rule import Rule
from memlint.rules.terms import TERMS
from memlint.source import Span

RULES = load_rules()
CODES = [rule.code for rule in RULES]


def rule_of(code: str) -> Rule:
    found = find_rule(RULES, code)
    assert found is not None
    return found


def run_of(dialect: str = "", path: str = "train.py", problems: tuple[Problem, ...] = (), **facts: Any) -> TrainingRun:
    known = {key.replace("__", "."): value if isinstance(value, Fact) else fixed(value) for key, value in facts.items()}
    return TrainingRun(path, Span(path, 1), known, dialect=dialect, problems=problems)


def found(code: str, run: TrainingRun, gpu: str | None = None) -> list[Finding]:
    return check(assess(run, find(gpu) if gpu else None), [rule_of(code)])


# Selection


@pytest.mark.parametrize(
    ("select", "ignore", "expected"),
    [
        ((), (), CODES),
        (("ALL",), (), CODES),
        (("MEM010",), (), ["MEM010"]),
        (("checkpointing-off",), (), ["MEM010"]),
        (("MEM00",), (), ["MEM001", "MEM002", "MEM003", "MEM004"]),
        (("MEM00",), ("MEM003",), ["MEM001", "MEM002", "MEM004"]),
        (("MEM003",), ("MEM0",), ["MEM003"]),
        (("MEM003",), ("MEM003",), []),
        ((), ("ALL",), []),
        (("micro-batch-too-large",), ("MEM00",), ["MEM003"]),
    ],
)
def test_select_and_ignore(select: tuple[str, ...], ignore: tuple[str, ...], expected: list[str]) -> None:
    assert [rule.code for rule in selected(RULES, Settings(select=select, ignore=ignore))] == expected


def test_a_selector_that_names_nothing() -> None:
    with pytest.raises(ConfigError, match="no rule is called 'checkpoint-off'; did you mean 'checkpointing-off'"):
        selected(RULES, Settings(select=("checkpoint-off",)))


@pytest.mark.parametrize("name", ["MEM010", "mem010", "checkpointing-off", "Checkpointing-Off"])
def test_find_rule(name: str) -> None:
    assert rule_of(name).code == "MEM010"


# Silence


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_unknown_facts_never_make_a_rule_fire(rule: Rule) -> None:
    assert check(assess(run_of(), find("t4")), [rule]) == []
    names = rule.when.names if rule.when else ()
    run = run_of(**{name.replace(".", "__"): unknown("nobody knows") for name in names})
    assert check(assess(run, find("t4")), [rule]) == []


def test_an_engine_configuration_alone_is_no_job() -> None:
    facts: dict[str, Any] = {"precision": "bf16-mixed", "parallel__strategy": "zero2"}
    assert found("MEM025", run_of("deepspeed", "ds.json", **facts), "t4") == []
    assert found("MEM025", run_of("accelerate", "accelerate.yaml", **facts), "t4") == []
    assert [f.code for f in found("MEM025", run_of("transformers", "train.py", **facts), "t4")] == ["MEM025"]


def test_problems_of_a_fragment_are_findings() -> None:
    problem = Problem("fp16-and-bf16-both", "fp16 and bf16 are both on", Span("ds.json", 3), (Span("ds.json", 2),))
    (finding,) = found("MEM026", run_of("deepspeed", "ds.json", (problem,)))
    assert (finding.message, finding.span.line, finding.labels[0].span.line) == ("fp16 and bf16 are both on", 3, 2)


@pytest.mark.parametrize(("gpu", "fires"), [("t4", True), ("v100", True), ("a10g", False), ("16GB", False), (None, False)])
def test_bfloat16_needs_a_card_that_is_known(gpu: str | None, fires: bool) -> None:
    assert bool(found("MEM025", run_of(precision="bf16-mixed"), gpu)) is fires


def test_choices_fire_only_when_every_one_does() -> None:
    both = choices(["bf16-mixed", "bf16-true"])
    assert [f.confidence for f in found("MEM025", run_of(precision=both), "t4")] == [Confidence.BOUNDED]
    assert found("MEM025", run_of(precision=choices(["bf16-mixed", "fp32"])), "t4") == []


FP32_LORA: dict[str, Any] = {
    "model__id": "Qwen/Qwen2.5-1.5B",
    "model__dtype": "float32",
    "adapter__method": "lora",
    "quantization__method": "none",
}


@pytest.mark.parametrize(
    "other",
    [
        {"adapter__method": "none"},  # full fine-tuning wants fp32 master weights
        {"quantization__method": "bnb_4bit"},
        {"model__dtype": "bfloat16"},
        {"model__dtype": unknown("the checkpoint decides")},
        {"model__id": "bert-base-uncased"},  # 110 million parameters
        {"model__id": "acme/unknown"},
    ],
)
def test_fp32_base_is_fine_elsewhere(other: dict[str, Any]) -> None:
    assert [f.code for f in found("MEM020", run_of(**FP32_LORA))] == ["MEM020"]
    assert found("MEM020", run_of(**{**FP32_LORA, **other})) == []


@pytest.mark.parametrize(("gpu", "dtype"), [(None, "bfloat16"), ("a10g", "bfloat16"), ("t4", "float16")])
def test_the_fix_suits_the_card(gpu: str | None, dtype: str) -> None:
    (finding,) = found("MEM020", run_of(**FP32_LORA), gpu)
    (fix,) = finding.fixes
    assert fix.changes == {"model.dtype": dtype}
    assert (fix.safety, fix.title) == (Safety.SAFE, f"Load the base in {dtype}")


def test_a_guessed_shape_makes_a_guess() -> None:
    exact = assess(run_of(**FP32_LORA))
    assert exact.lookup is not None
    guessed = Assessment(exact.run, Lookup(exact.architecture, "name pattern", False))
    assert [f.confidence for f in check(exact, [rule_of("MEM020")])] == [Confidence.PROVED]
    assert [f.confidence for f in check(guessed, [rule_of("MEM020")])] == [Confidence.GUESSED]


def test_only_errors_that_are_more_than_a_guess_fail() -> None:
    def finding(severity: Severity, confidence: Confidence) -> Finding:
        return Finding("MEM001", "x", severity, confidence, "m", Span("a.py", 1))

    assert finding(Severity.ERROR, Confidence.PROVED).fails
    assert finding(Severity.ERROR, Confidence.BOUNDED).fails
    assert not finding(Severity.ERROR, Confidence.GUESSED).fails
    assert not finding(Severity.WARNING, Confidence.PROVED).fails


# Places


def test_a_finding_points_at_the_value_and_shows_the_chain() -> None:
    fact = Fact("bf16-mixed", origin=(Origin(Span("train.py", 9), ""), Origin(Span("run.sh", 2), "passed by the launch line")))
    (finding,) = found("MEM025", run_of(precision=fact), "t4")
    assert finding.span == Span("train.py", 9)
    assert [(label.span, label.text) for label in finding.labels] == [(Span("run.sh", 2), "passed by the launch line")]


def test_a_default_points_at_the_run() -> None:
    (finding,) = found("MEM025", run_of(precision=default("bf16-mixed", "trl 1.16.0")), "t4")
    assert finding.span == Span("train.py", 1)


# Fixes and labels


FULL: dict[str, Any] = {
    "framework__name": "trl",
    "objective": "causal_lm",
    "model__id": "Qwen/Qwen2.5-7B",
    "model__dtype": "float32",
    "precision": "bf16-mixed",
    "optimizer__name": "adamw_torch_fused",
    "checkpointing__enabled": True,
    "batch__micro_batch_size": default(8, "transformers"),
    "batch__gradient_accumulation_steps": 1,
}


@pytest.mark.parametrize(
    ("length", "offered"),
    [
        (2048, True),  # logits: 8 x 2048 x 152064 x 4 B = 9.3 GiB a copy, an eighth of it afterwards
        (128, False),  # accumulating keeps 28.4 GiB of gradients through the forward pass, eight samples need less
    ],
)
def test_a_fix_that_does_not_lower_the_memory_is_not_offered(length: int, offered: bool) -> None:
    (finding,) = found("MEM004", run_of(**FULL, batch__sequence_length=length), "a100-80gb")
    assert bool(finding.fixes) is offered


def test_a_label_with_an_unknown_in_it_is_left_out() -> None:
    span = Span("train.py", 3, 5, 3, 9)
    facts: dict[str, Any] = {"reference_model": "copy", "objective": "dpo", "adapter__method": "lora"}
    known = fixed("Qwen/Qwen2.5-7B", span)
    assert [label.text for label in found("MEM110", run_of(model__id=known, **facts))[0].labels] == ["7.62B parameters"]
    assert found("MEM110", run_of(model__id=fixed("acme/unknown", span), **facts))[0].labels == ()


@pytest.mark.parametrize(("method", "codes"), [("none", ["MEM101"]), ("bnb_4bit", [])])
def test_what_is_quantised_on_the_card_is_not_loaded_into_the_host(method: str, codes: list[str]) -> None:
    """transformers 5.24 `quantizers/quantizer_bnb_4bit.py`: without a device map each process loads onto its own card."""
    run = run_of(
        model__id="meta-llama/Llama-3.1-70B",
        model__dtype="bfloat16",
        parallel__strategy="fsdp1",
        parallel__gpus=8,
        parallel__cpu_ram_efficient_loading=False,
        quantization__method=method,
    )
    assert [finding.code for finding in found("MEM101", run)] == codes


# Pages of a team


PAGE = """\
---
code: ACME001
name: packing-wanted
severity: error
since: "1"
when: {when}
message: "pack samples: {{batch.sequence_length}} tokens, {{estimate.needed|bytes}}"
at: [batch.packing]
{more}
---
# packing-wanted (ACME001)
"""


def team(folder: Path, when: str = "not batch.packing", more: str = "") -> tuple[Rule, ...]:
    (folder / "acme.md").write_text(PAGE.format(when=when, more=more))
    return load_rules(Settings(rules=(str(folder),)))


def test_a_team_page_is_a_rule(tmp_path: Path) -> None:
    rules = team(tmp_path)
    run = run_of(batch__packing=False, batch__sequence_length=512)
    (finding,) = [f for f in check(assess(run), rules) if f.code == "ACME001"]
    assert finding.message == "pack samples: 512 tokens, unknown"
    assert finding.severity is Severity.ERROR
    assert [r.code for r in selected(rules, Settings(select=("ACME",)))] == ["ACME001"]


@pytest.mark.parametrize(
    ("when", "more", "message"),
    [
        ("not batch.pakcing", "", "there is no fact or term 'batch.pakcing'"),
        ("batch.packing > 3", "", "batch.packing is true or false, expected a number"),
        ('precision == "bf16"', "", "precision is never 'bf16'"),
        ("__import__('os')", "", "no function __import__()"),
        ("not batch.packing", "safety: maybe", "safety: 'maybe' is none of safe, unsafe, suggest"),
        ("not batch.packing", "colour: red", "unknown key 'colour'"),
        ("not batch.packing", "labels: {batch.pack: x}", "there is no fact 'batch.pack'"),
        ("not batch.packing", 'labels: {batch.packing: "{batch.packing|bites}"}', "there is no format 'bites'"),
        ("not batch.packing", "fix: {title: x, changes: {batch.packing: '= nothing'}}", "there is no fact or term 'nothing'"),
        ("not batch.packing", "aliases: [checkpointing-off]", "checkpointing-off is already the rule of"),
    ],
)
def test_what_is_wrong_with_a_team_page_is_said(tmp_path: Path, when: str, more: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        team(tmp_path, when, more)
    assert message in error.value.message
    assert error.value.path.endswith("acme.md")


@pytest.mark.parametrize(
    "text",
    [
        "# no front matter\n",
        "---\ncode: MEM001\n",
        "---\n- a\n- b\n---\n",
        "---\ncode: [\n---\n",
        "---\ncode: x\nname: a\nseverity: error\nsince: 1\nmessage: m\n---\n",
        "---\ncode: MEM001\nname: A B\nseverity: error\nsince: 1\nmessage: m\n---\n",
        "---\ncode: MEM001\nname: a\nseverity: grave\nsince: 1\nmessage: m\n---\n",
        "---\ncode: MEM001\nname: a\nseverity: error\nsince: 1\n---\n",
    ],
)
def test_what_is_no_page(tmp_path: Path, text: str) -> None:
    page = tmp_path / "x.md"
    page.write_text(dedent(text))
    with pytest.raises(PageError):
        read_rule(str(page))


def test_the_example_of_the_readme_is_a_rule(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "rules" / "README.md").read_text(encoding="utf-8")
    front = readme.partition("## Front matter\n\n```yaml\n")[2].partition("```")[0]
    (tmp_path / "acme.md").write_text(f"---\n{front}---\n# sequences-too-long (ACME001)\n", encoding="utf-8")
    rules = load_rules(Settings(rules=(str(tmp_path),)))
    run = run_of(batch__sequence_length=8192, batch__packing=False)
    (finding,) = [f for f in check(assess(run), rules) if f.code == "ACME001"]
    assert finding.message == "8192 tokens a sample: our data has 95 % below 2048"
    assert finding.fixes[0].changes == {"batch.sequence_length": 4096}


def test_the_readme_names_every_term() -> None:
    readme = (Path(__file__).parents[2] / "rules" / "README.md").read_text(encoding="utf-8")
    for name in TERMS:
        last = name.rsplit(".", 1)[-1]
        assert last in readme or name == "problem_message", name
