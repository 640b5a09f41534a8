"""Values that once came out as certain and were not, and idioms that came out as unknown: by hand what Python would compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.extract import extract
from memlint.facts import Fact, Status
from memlint.project import Project

HEAD = """import os, sys, json
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
"""
TAIL = "\nTrainer(AutoModelForCausalLM.from_pretrained('gpt2'), TrainingArguments('o', per_device_train_batch_size={})).train()\n"


def batch(folder: Path, code: str, expression: str) -> Fact:
    (folder / "train.py").write_text(HEAD + code + TAIL.format(expression), encoding="utf-8")
    (run,) = extract(str(folder / "train.py"), Project(root=folder)).runs
    return run.facts["batch.micro_batch_size"]


@pytest.mark.parametrize(
    ("code", "expression"),
    [
        ("rows = []\nfor line in open('f'):\n    rows.append(line)\n", "len(rows)"),
        ("sizes = [4]\nif int(os.environ['X']):\n    sizes.append(8)\n", "len(sizes)"),
        ("bs = int(input())\n", "bs"),
    ],
)
def test_what_cannot_be_known_is_not_claimed(tmp_path: Path, code: str, expression: str) -> None:
    assert batch(tmp_path, code, expression).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("code", "expression", "values"),
    [
        ("try:\n    import flash_attn\n    bs = 8\nexcept ImportError:\n    bs = 2\n", "bs", {8, 2}),
        ("try:\n    bs = 8\n    os.stat('x')\nexcept OSError:\n    bs = 2\n", "bs", {8, 2}),
        ("sizes = [4]\nif int(os.environ['X']):\n    sizes += [8]\n", "sizes[-1]", {4, 8}),
    ],
)
def test_both_outcomes_stay_possible(tmp_path: Path, code: str, expression: str, values: set[int]) -> None:
    fact = batch(tmp_path, code, expression)
    assert fact.status is Status.CHOICES
    assert set(fact.choices) == values


@pytest.mark.parametrize(
    ("code", "expression", "value"),
    [
        ("from collections import namedtuple\nP = namedtuple('P', 'model bs accum', defaults=[2])\np = P('x', 4)\n", "p.bs", 4),
        ("from enum import Enum\nclass E(Enum):\n    A = 4\n    B = 8\n", "E['B'].value", 8),
        ("from enum import Enum\nclass E(Enum):\n    A = 4\n", "{e.name: e.value for e in E}['A']", 4),
        ("class C:\n    def __init__(self, **kw):\n        self.__dict__.update(kw)\n", "C(bs=6).bs", 6),
        ("a, b = divmod(17, 4)\n", "a", 4),
        ("c = json.loads('{\"bs\": 4}')\n", "c['bs']", 4),
        ("for i in range(99):\n    if os.system('x'):\n        break\nelse:\n    raise RuntimeError\n", "4", 4),
    ],
)
def test_what_python_would_compute(tmp_path: Path, code: str, expression: str, value: int) -> None:
    fact = batch(tmp_path, code, expression)
    assert (fact.status, fact.value) == (Status.FIXED, value)
