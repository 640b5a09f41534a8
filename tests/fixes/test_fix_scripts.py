"""Changes written into Python scripts and launch lines; each expected text is the script with one thing replaced by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlint.extract import extract
from memlint.fixes import fix_edits
from memlint.project import Project

SCRIPT = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

BATCH = 16  # per GPU
ACCUMULATION = 2

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype=torch.float32)
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=BATCH,
    gradient_accumulation_steps=ACCUMULATION,
    bf16=False,  # not yet
    fp16=True,
)
Trainer(model=model, args=args, train_dataset=data).train()
"""

LOOP = """\
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(
    "gpt2", dtype=torch.float32
).cuda()  # one card
loader = DataLoader(data, batch_size=8)
optimizer = torch.optim.AdamW(model.parameters())
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

PARSED = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
options = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
args = TrainingArguments("out", per_device_train_batch_size=options.batch)
Trainer(model=model, args=args, train_dataset=data).train()
"""


def fixed(folder: Path, files: dict[str, str], changes: dict[str, Any]) -> dict[str, str] | None:
    """The changed files after the changes were made to the only run of the first file."""
    for name, text in files.items():
        (folder / name).write_text(text)
    project = Project(folder)
    (run,) = extract(str(folder / next(iter(files))), project).runs
    found = fix_edits(run, changes, project)
    return None if found is None else {Path(path).name: source.text for path, source in found.after.items()}


CASES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "a constant behind an argument": (SCRIPT, {"batch.micro_batch_size": 4}, "BATCH = 16", "BATCH = 4"),
    "a dtype": (SCRIPT, {"model.dtype": "bfloat16"}, "torch.float32", "torch.bfloat16"),
    "two switches that exclude each other": (
        SCRIPT,
        {"precision": "bf16-mixed"},
        "bf16=False,  # not yet\n    fp16=True",
        "bf16=True,  # not yet\n    fp16=False",
    ),
    "an argument that is not there": (
        SCRIPT,
        {"checkpointing.enabled": True},
        "    fp16=True,\n",
        "    fp16=True,\n    gradient_checkpointing=True,\n",
    ),
    "a raw loop": (LOOP, {"batch.micro_batch_size": 4}, "batch_size=8", "batch_size=4"),
    "checkpointing in a raw loop": (
        LOOP,
        {"checkpointing.enabled": True},
        ").cuda()  # one card\n",
        ").cuda()  # one card\nmodel.gradient_checkpointing_enable()\n",
    ),
    "a parser's default": (PARSED, {"batch.micro_batch_size": 4}, "default=16", "default=4"),
}


@pytest.mark.parametrize(("text", "changes", "old", "new"), CASES.values(), ids=CASES)
def test_a_script(tmp_path: Path, text: str, changes: dict[str, Any], old: str, new: str) -> None:
    assert text.count(old) == 1
    assert fixed(tmp_path, {"train.py": text}, changes) == {"train.py": text.replace(old, new)}
    assert fixed(tmp_path, {"train.py": text.replace(old, new)}, changes) == {}, "fixing twice changes nothing"


def test_two_constants_at_once(tmp_path: Path) -> None:
    changes = {"batch.micro_batch_size": 4, "batch.gradient_accumulation_steps": 8}
    expected = SCRIPT.replace("BATCH = 16", "BATCH = 4").replace("ACCUMULATION = 2", "ACCUMULATION = 8")
    assert fixed(tmp_path, {"train.py": SCRIPT}, changes) == {"train.py": expected}


def test_accumulation_that_follows_from_the_batch(tmp_path: Path) -> None:
    """The script keeps the effective batch itself: one number is enough, and another accumulation is not possible."""
    script = SCRIPT.replace("ACCUMULATION = 2", "ACCUMULATION = 32 // BATCH")
    changes = {"batch.micro_batch_size": 4, "batch.gradient_accumulation_steps": 8}
    assert fixed(tmp_path, {"train.py": script}, changes) == {"train.py": script.replace("BATCH = 16", "BATCH = 4")}
    assert fixed(tmp_path, {"train.py": script}, {"batch.micro_batch_size": 4}) is None


def test_a_constant_that_decides_more_is_left_alone(tmp_path: Path) -> None:
    script = SCRIPT.replace(
        'output_dir="out",', 'output_dir="out",\n    eval_accumulation_steps=BATCH,\n    eval_strategy="steps",'
    )
    assert fixed(tmp_path, {"train.py": script}, {"batch.micro_batch_size": 4}) is None


def test_the_evaluation_batch_may_follow(tmp_path: Path) -> None:
    script = SCRIPT.replace('output_dir="out",', 'output_dir="out",\n    per_device_eval_batch_size=BATCH,')
    assert fixed(tmp_path, {"train.py": script}, {"batch.micro_batch_size": 4}) == {
        "train.py": script.replace("BATCH = 16", "BATCH = 4")
    }


def test_a_value_that_is_computed_is_left_alone(tmp_path: Path) -> None:
    script = SCRIPT.replace("per_device_train_batch_size=BATCH", "per_device_train_batch_size=BATCH * 2")
    assert fixed(tmp_path, {"train.py": script}, {"batch.micro_batch_size": 3}) is None


@pytest.mark.parametrize(
    ("launch", "old", "new"),
    [
        ("python train.py --batch 32\n", "--batch 32", "--batch 4"),
        ("BS=32\npython train.py \\\n  --batch $BS\n", "BS=32", "BS=4"),
        ("python train.py --batch ${BS:-32}\n", ":-32", ":-4"),
    ],
    ids=["a flag", "a variable", "a variable's default"],
)
def test_the_launch_line_is_where_the_value_is(tmp_path: Path, launch: str, old: str, new: str) -> None:
    files = {"run.sh": launch, "train.py": PARSED}
    assert fixed(tmp_path, files, {"batch.micro_batch_size": 4}) == {"run.sh": launch.replace(old, new)}


def test_what_the_launch_leaves_to_the_script_is_changed_there(tmp_path: Path) -> None:
    changed = fixed(tmp_path, {"run.sh": "python train.py\n", "train.py": PARSED}, {"batch.micro_batch_size": 4})
    assert changed == {"train.py": PARSED.replace("default=16", "default=4")}
