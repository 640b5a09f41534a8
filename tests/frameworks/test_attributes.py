"""Attributes whose names are not known: what they may set is not claimed."""

from __future__ import annotations

from pathlib import Path

from memlint.extract import extract
from memlint.facts import Status
from memlint.project import Project

SCRIPT = """
import argparse, json
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=1)
args = parser.parse_args()
for name, value in json.load(open("elsewhere.json")).items():
    setattr(args, name, value)
args.accumulation = 4
model = AutoModelForCausalLM.from_pretrained("gpt2")
arguments = TrainingArguments("out", per_device_train_batch_size=args.batch_size, gradient_accumulation_steps=args.accumulation)
Trainer(model=model, args=arguments).train()
"""


def test_an_attribute_of_unknown_name_may_be_any_that_was_set_before(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = extract(str(script), Project(tmp_path)).runs[0]
    assert run.facts["batch.micro_batch_size"].status is Status.UNKNOWN
    assert "line 9" in run.facts["batch.micro_batch_size"].reason
    assert run.facts["batch.gradient_accumulation_steps"].value == 4
