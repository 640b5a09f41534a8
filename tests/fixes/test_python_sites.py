"""Facts that rules may fix, written where Python states them: DataLoader, Lightning's Trainer, TrainingArguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlint.extract import extract
from memlint.fixes import fix_edits
from memlint.fixes.verify import says
from memlint.project import Project

LIGHTNING = """\
import torch
import lightning as L
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")  # the base

    def training_step(self, batch, _):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5)


loader = DataLoader(rows, batch_size=8, shuffle=True)  # per GPU
trainer = L.Trainer(
    devices=4,
    precision="32-true",  # wide
    strategy="ddp",  # copies
)
trainer.fit(Module(), loader)
"""

ARGUMENTS = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")  # the base
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=8,  # per GPU
    torch_compile=True,
    torch_compile_mode="max-autotune",  # cudagraphs
    fsdp="shard_grad_op auto_wrap",  # keep
)
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("text", "changes", "gone", "new"),
    [
        (LIGHTNING, {"batch.micro_batch_size": 2}, ["batch_size=8, shuffle=True)  # per GPU"], ["batch_size=2, shuffle=True)  # per GPU"]),
        (LIGHTNING, {"precision": "bf16-mixed"}, ['precision="32-true",  # wide'], ['precision="bf16-mixed",  # wide']),
        (LIGHTNING, {"parallel.strategy": "zero3"}, ['strategy="ddp",  # copies'], ['strategy="deepspeed_stage_3",  # copies']),
        (LIGHTNING, {"batch.gradient_accumulation_steps": 4}, [], ["accumulate_grad_batches=4"]),
        (ARGUMENTS, {"compile.mode": "default"}, ['="max-autotune",  # cudagraphs'], ['="default",  # cudagraphs']),
        (ARGUMENTS, {"parallel.find_unused_parameters": False}, [], ["ddp_find_unused_parameters=False"]),
        (ARGUMENTS, {"parallel.static_graph": True}, [], ["ddp_static_graph=True"]),
        (ARGUMENTS, {"parallel.sync_each_batch": True}, [],
         ['accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}}']),
        (ARGUMENTS, {"parallel.fsdp_sharding": "full_shard", "parallel.reshard_after_forward": True},
         ['"shard_grad_op auto_wrap",  # keep'], ['"full_shard auto_wrap",  # keep']),
    ],
)  # fmt: skip
def test_written_where_it_is_stated(tmp_path: Path, text: str, changes: dict[str, Any], gone: list[str], new: list[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    project = Project.around(str(path))
    (run,) = extract(str(path), project).runs
    fixed = fix_edits(run, changes, project)
    assert fixed is not None
    after = fixed.after[str(path)].text
    assert all(part in text and part not in after for part in gone)
    assert all(part in after and part not in text for part in new)
    assert after.count("#") == text.count("#")
    assert all(says(extract(str(path), project.with_texts(fixed.after)).runs[0], key, value) for key, value in changes.items())
