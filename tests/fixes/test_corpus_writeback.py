"""Every fact that a rule may fix, written into every configuration of the corpus, as each dialect spells it.

What must be writable is stated here by hand; what the text says afterwards is read by PyYAML, json and the readers; what
may change in the text is counted in lines.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from memlint.extract import extract
from memlint.fixes import FixEdits, fix_edits
from memlint.project import Project

CORPUS = Path(__file__).parents[1] / "corpus" / "extraction"
CASES = sorted(path.parent for path in CORPUS.glob("*/*/expected.yaml"))

CHANGES: dict[str, tuple[Any, ...]] = {
    "checkpointing.enabled": (True, False),
    "precision": ("bf16-mixed", "fp16-mixed"),
    "batch.micro_batch_size": (3,),
    "batch.gradient_accumulation_steps": (5,),
    "batch.sequence_length": (768,),
    "optimizer.name": ("paged_adamw_8bit",),
    "model.attention": ("sdpa",),
    "eval.batch_size": (1,),
    "quantization.double_quant": (True,),
}

BATCH = ("batch.micro_batch_size", "batch.gradient_accumulation_steps")
WRITABLE = {
    "axolotl": (*BATCH, "batch.sequence_length", "checkpointing.enabled", "optimizer.name", "model.attention"),
    "llama_factory": (*BATCH, "batch.sequence_length", "checkpointing.enabled", "model.attention"),
    "deepspeed": BATCH,
}
"""Dialect -> the keys that can be written into every file of it."""


def project_of(case: Path) -> tuple[str, Project]:
    """The entry of a case; its folder is the root, as the corpus defines."""
    entry = yaml.safe_load((case / "expected.yaml").read_text())["entry"]
    return str(case / entry), Project(case)


def test_the_corpus_is_there() -> None:
    assert len(CASES) >= 56


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_written_back(case: Path) -> None:
    path, project = project_of(case)
    for index, run in enumerate(extract(path, project).runs):
        for key, values in CHANGES.items():
            for value in values:
                fixed = fix_edits(run, {key: value}, project)
                if fixed is None:
                    assert key not in WRITABLE.get(run.dialect, ()), f"{run.dialect} must be able to say {key} = {value}"
                elif fixed.edits:
                    assert_written(path, index, key, value, fixed, project)


def assert_written(path: str, index: int, key: str, value: Any, fixed: FixEdits, project: Project) -> None:
    again = project.with_texts(fixed.after)
    after = extract(path, again).runs[index]
    assert after.value(key) == value
    repeated = fix_edits(after, {key: value}, again)
    assert repeated is not None
    assert repeated.edits == (), "fixing twice changes nothing"
    for changed, source in fixed.after.items():
        assert_only_meant(fixed.before[changed].text, source.text, changed)


def assert_only_meant(before: str, after: str, path: str) -> None:
    """A few lines at most, no comment lost, the same line ends, and the same values under all keys but a few."""
    opcodes = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_opcodes()
    gone = [line for op in opcodes if op[0] != "equal" for line in before.splitlines()[op[1] : op[2]]]
    assert len(gone) <= 3
    assert sum(op[4] - op[3] for op in opcodes if op[0] != "equal") <= 5
    assert after.count("#") >= before.count("#")
    assert (after.count("\r\n") == after.count("\n")) == (before.count("\r\n") == before.count("\n"))
    load = {".yaml": yaml.safe_load_all, ".yml": yaml.safe_load_all, ".json": lambda text: [json.loads(text)]}.get(
        Path(path).suffix
    )
    if load is not None:
        old, new = leaves(list(load(before))), leaves(list(load(after)))
        assert len(old.items() ^ new.items()) <= 6, "two keys changed, or three new ones"


def leaves(data: Any, prefix: str = "") -> dict[str, str]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    if not items:
        return {prefix: repr(data)}
    return {path: leaf for name, value in items for path, leaf in leaves(value, f"{prefix}/{name}").items()}
