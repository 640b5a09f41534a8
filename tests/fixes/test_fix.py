"""Changes written into files and proved by reading again; and the rounds of `run_fixes` with a linter of our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from memlint.assess import assess
from memlint.extract import extract
from memlint.fixes import FixEdits, Offer, fix_edits, run_fixes
from memlint.fixes.edit import WriteError
from memlint.gpus import find
from memlint.project import Project
from memlint.rules.finding import Confidence, Finding, Fix, Safety, Severity
from memlint.source import Source

AXOLOTL = """\
base_model: NousResearch/Llama-3.2-1B  # small
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca

sequence_len: 2048
micro_batch_size: 16  # too many
num_epochs: 1
optimizer: adamw_torch
learning_rate: 2e-5
bf16: true
# the end
"""


def fixed(path: Path, changes: Mapping[str, Any], index: int = 0) -> FixEdits | None:
    project = Project(path.parent)
    return fix_edits(extract(str(path), project).runs[index], changes, project)


def written(path: Path, changes: Mapping[str, Any]) -> str | None:
    found = fixed(path, changes)
    return None if found is None else found.after[str(path)].text if found.after else path.read_text()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(AXOLOTL)
    return path


def test_several_changes_at_once(config: Path) -> None:
    changes = {"batch.micro_batch_size": 4, "batch.gradient_accumulation_steps": 4, "checkpointing.enabled": True}
    expected = AXOLOTL.replace("16  # too many", "4  # too many").replace(
        "bf16: true\n", "bf16: true\ngradient_accumulation_steps: 4\ngradient_checkpointing: true\n"
    )
    assert written(config, changes) == expected
    config.write_text(expected)
    again = fixed(config, changes)
    assert again is not None
    assert again.edits == (), "fixing twice changes nothing"


def test_a_value_that_two_settings_share_is_not_changed(config: Path) -> None:
    config.write_text(
        AXOLOTL.replace("micro_batch_size: 16", "micro_batch_size: &size 16").replace("# the end", "eval_batch_size: *size")
    )
    assert fixed(config, {"batch.micro_batch_size": 4}) is None
    assert fixed(config, {"eval.batch_size": 4}) is not None, "the alias can be replaced where it is used"


def test_a_merged_value_is_overridden_where_it_is_used(config: Path) -> None:
    text = AXOLOTL.replace("micro_batch_size: 16  # too many\n", "<<: *small\n")
    config.write_text("x-small: &small {micro_batch_size: 16}\n" + text)
    expected = config.read_text().replace("bf16: true\n", "bf16: true\nmicro_batch_size: 4\n")
    assert written(config, {"batch.micro_batch_size": 4}) == expected


def test_a_value_set_from_outside_is_not_fixed_in_the_file(config: Path) -> None:
    project = Project(config.parent)
    run = extract(str(config), project).runs[0].with_values({"batch.micro_batch_size": 64}, "--set")
    assert fix_edits(run, {"batch.micro_batch_size": 4}, project) is None
    assert fix_edits(run, {"checkpointing.enabled": True}, project) is not None


def test_what_a_dialect_cannot_say_is_not_written(config: Path) -> None:
    assert fixed(config, {"optimizer.grad_dtype": "bfloat16"}) is None
    assert fixed(config, {"checkpointing.enabled": True, "optimizer.grad_dtype": "bfloat16"}) is None, "all or nothing"


def test_the_linked_file_is_edited(tmp_path: Path) -> None:
    """ZeRO lives in the DeepSpeed file that the configuration names."""
    (tmp_path / "ds.json").write_text(
        '{\n  "zero_optimization": {\n    "stage": 2\n  },\n  "train_micro_batch_size_per_gpu": "auto"\n}\n'
    )
    config = tmp_path / "config.yaml"
    config.write_text(AXOLOTL + "deepspeed: ds.json\n")
    found = fixed(config, {"parallel.strategy": "zero3"})
    assert found is not None
    (path,) = found.after
    assert Path(path).name == "ds.json"
    assert found.after[path].text == found.before[path].text.replace('"stage": 2', '"stage": 3')


# Rounds --------------------------------------------------------------------------------------------------------------


class Linter:
    """Offers the given fixes, in order, as long as the facts are not as they want them."""

    def __init__(self, path: Path, *fixes: Fix) -> None:
        self.path, self.fixes, self.rounds = path, fixes, 0

    def __call__(self, texts: Mapping[str, Source]) -> Iterable[Offer]:
        self.rounds += 1
        project = Project(self.path.parent).with_texts(texts)
        for run in extract(str(self.path), project).runs:
            for fix in self.fixes:
                if any(run.value(key) != value for key, value in fix.changes.items()):
                    finding = Finding("MEM999", "x", Severity.ERROR, Confidence.PROVED, "x", run.span, fixes=(fix,))
                    yield Offer(finding, assess(run, find("rtx-4090")), project)


CHECKPOINTING = Fix("checkpoint", {"checkpointing.enabled": True}, Safety.SAFE)
SMALLER = Fix("smaller", {"batch.micro_batch_size": 4, "batch.gradient_accumulation_steps": 4}, Safety.UNSAFE)
LORA = Fix("adapter", {"batch.sequence_length": 512}, Safety.SUGGEST)


def test_safe_fixes_only(config: Path) -> None:
    outcome = run_fixes(Linter(config, SMALLER, CHECKPOINTING, LORA))
    assert [applied.fix for applied in outcome.applied] == [CHECKPOINTING]
    assert config.read_text() == AXOLOTL, "nothing is written before `write`"
    outcome.write()
    assert config.read_text() == AXOLOTL.replace("bf16: true\n", "bf16: true\ngradient_checkpointing: true\n")


def test_unsafe_fixes_on_demand_suggestions_never(config: Path) -> None:
    outcome = run_fixes(Linter(config, SMALLER, CHECKPOINTING, LORA), unsafe=True)
    assert [applied.fix for applied in outcome.applied] == [SMALLER, CHECKPOINTING]
    outcome.write()
    assert run_fixes(Linter(config, SMALLER, CHECKPOINTING), unsafe=True).applied == ()


def test_the_diff(config: Path) -> None:
    assert run_fixes(Linter(config, CHECKPOINTING)).diff().splitlines()[2:] == [
        "@@ -9,4 +9,5 @@",
        " optimizer: adamw_torch",
        " learning_rate: 2e-5",
        " bf16: true",
        "+gradient_checkpointing: true",
        " # the end",
    ]


def test_fixes_that_undo_each_other_change_nothing(config: Path) -> None:
    off = Fix("off", {"checkpointing.enabled": False}, Safety.SAFE)
    linter = Linter(config, CHECKPOINTING, off)
    outcome = run_fixes(linter)
    assert not outcome.converged
    assert (outcome.applied, outcome.diff()) == ((), "")
    assert linter.rounds <= 10


def test_fixes_without_end_change_nothing(config: Path) -> None:
    class Restless(Linter):
        def __call__(self, texts: Mapping[str, Source]) -> Iterable[Offer]:
            self.fixes = (Fix("more", {"batch.gradient_accumulation_steps": self.rounds + 2}, Safety.SAFE),)
            return list(super().__call__(texts))

    linter = Restless(config)
    outcome = run_fixes(linter)
    assert (outcome.converged, linter.rounds) == (False, 10)
    outcome.write()
    assert config.read_text() == AXOLOTL


def test_a_locked_file_is_an_error_and_untouched(config: Path) -> None:
    outcome = run_fixes(Linter(config, CHECKPOINTING))
    config.chmod(0o444)
    with pytest.raises(WriteError, match="read-only"):
        outcome.write()
    assert config.read_text() == AXOLOTL
