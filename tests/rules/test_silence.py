"""On real files the rules are quiet: every error and warning over the labelled corpus is listed and was judged by hand.

The files are working configurations and scripts of their authors (`tests/corpus/extraction`). What is listed is true of them; a
change that adds a line must show that the new finding is true as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from memlint.cli.examine import examine
from memlint.cli.session import Inputs, Session
from memlint.config import Configs
from memlint.report.result import CheckResult
from memlint.rules.catalogue import load_rules
from memlint.rules.finding import Severity

CORPUS = Path(__file__).parents[1] / "corpus" / "extraction"
CASES = sorted(path.parent for path in CORPUS.glob("*/*/expected.yaml"))

WITHOUT_TARGET = {
    # LLM.int8 under gradient_checkpointing_enable(), which is non-reentrant since transformers 5: the inputs of 8-bit layers stay.
    ("bnb-8bit-vs-dtype", "MEM018"),
    # fp16=True with weights loaded in float16: the scaler refuses them, as the corpus notes say.
    ("crlf-bom", "MEM023"),
    # lora_modules_to_save: [embed_tokens, lm_head] of Llama 3: 525 million parameters each.
    ("openinstruct-dpo-duplicate-keys", "MEM130"),
}
"""Findings when no target card is named."""

ON_CARDS = {
    ("crlf-bom", "MEM023"),
    ("openinstruct-dpo-duplicate-keys", "MEM130"),
}
"""Findings that rest on no estimate, on any card that computes bfloat16."""

RESTS_ON_ESTIMATE = {
    rule.code
    for rule in load_rules()
    if rule.when
    and any(name.partition(".")[0] in ("estimate", "verdict", "fits_for_sure", "largest") for name in rule.when.names)
}


def findings(case: Path, gpu: str | None, monkeypatch: pytest.MonkeyPatch) -> CheckResult:
    entry = yaml.safe_load((case / "expected.yaml").read_text(encoding="utf-8"))["entry"]
    monkeypatch.chdir(case)
    session = Session(Configs(isolated=True), lambda settings: settings.with_options("--gpu", gpu=gpu))
    return examine(Inputs((entry,), frozenset({entry})), session)


def found(gpu: str | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    for case in CASES:
        for finding in findings(case, gpu, monkeypatch).findings:
            if finding.severity is not Severity.INFO:
                yield case.name, finding.code


def test_the_corpus_is_there() -> None:
    assert len(CASES) > 100


def test_without_a_target_only_what_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(found(None, monkeypatch)) == WITHOUT_TARGET


@pytest.mark.parametrize("gpu", ["h200", "a100-80gb", "24GB"])
def test_with_a_target_nothing_else(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {pair for pair in found(gpu, monkeypatch) if pair[1] not in RESTS_ON_ESTIMATE} == ON_CARDS
