"""What a script leaves to its launch, and heads and evaluations that keep no logits of a vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.assess import Assessment
from memlint.extract import extract
from memlint.facts import TrainingRun
from memlint.project import Project
from memlint.rules.scope import Facts

WORDS = """
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
{parsed}
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
Trainer(model, args, train_dataset=1).train()
"""
HF = "args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()"
ARGPARSE = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=8)
args = TrainingArguments("o", per_device_train_batch_size=parser.parse_args().bs)"""


def run_of(folder: Path, entry: str, **files: str) -> TrainingRun:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    (run,) = extract(str(folder / entry), Project(root=folder)).runs
    return run


@pytest.mark.parametrize(
    ("parsed", "launch", "stated"),
    [
        (HF, "", True),  # nobody has started it yet
        (ARGPARSE, "", True),  # the parser's own 8 is the script's choice
        (HF, "python train.py --per_device_train_batch_size 8", True),
        (HF, "python train.py --bf16 True", False),  # started without: the library's 8
        ('args = TrainingArguments("o")', "", False),
    ],
)
def test_a_batch_size_is_left_at_its_default(tmp_path: Path, parsed: str, launch: str, stated: bool) -> None:
    run = run_of(tmp_path, "run.sh" if launch else "train.py", train_py=WORDS.format(parsed=parsed), run_sh=launch)
    assert run.facts["batch.micro_batch_size"].value == 8
    assert Facts(Assessment(run)).explicit("batch.micro_batch_size") is stated


def test_an_evaluation_that_generates_keeps_tokens(tmp_path: Path) -> None:
    """transformers 5.24.0 `Seq2SeqTrainer.prediction_step` returns the generated tokens with `predict_with_generate`."""
    script = """
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments
args = Seq2SeqTrainingArguments("o", predict_with_generate={generate}, eval_strategy="epoch")
model = AutoModelForSeq2SeqLM.from_pretrained("google/flan-t5-xl")
Seq2SeqTrainer(model, args, train_dataset=1, eval_dataset=2, compute_metrics=rouge).train()
"""
    kept = [
        run_of(tmp_path, "train.py", train_py=script.format(generate=generate)).facts["eval.keeps_logits"].value
        for generate in (True, False)
    ]
    assert kept == [False, True]


def test_the_head_of_a_class_of_the_script_is_its_own(tmp_path: Path) -> None:
    script = """
from torch import nn
from transformers import Qwen2_5_VLPreTrainedModel, Trainer, TrainingArguments

class Judge(Qwen2_5_VLPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels)

Trainer(Judge.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct"), TrainingArguments("o"), train_dataset=1).train()
"""
    run = run_of(tmp_path, "train.py", train_py=script)
    assert run.facts["model.id"].value == "Qwen/Qwen2.5-VL-3B-Instruct"
    assert not run.fact("objective").known


@pytest.mark.parametrize(
    "loaded",
    [
        'model = typing.cast(torch.nn.Module, AutoModelForCausalLM.from_pretrained("gpt2"))',
        'model, tokenizer = setup_chat_format(AutoModelForCausalLM.from_pretrained("gpt2"), tokenizer)',
        'model, tokenizer, added = clone_chat_template(AutoModelForCausalLM.from_pretrained("gpt2"), tokenizer, "other")',
        'model = AutoLigerKernelForCausalLM.from_pretrained("gpt2")',
    ],
)
def test_what_gives_a_model_back_is_followed(tmp_path: Path, loaded: str) -> None:
    script = f"""
import typing
import torch
from liger_kernel.transformers import AutoLigerKernelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer, clone_chat_template, setup_chat_format
tokenizer = AutoTokenizer.from_pretrained("gpt2")
{loaded}
SFTTrainer(model, args=SFTConfig("o"), train_dataset=1).train()
"""
    run = run_of(tmp_path, "train.py", train_py=script)
    assert run.facts["model.id"].value == "gpt2"
    assert (run.facts["loss.logits"].value == "fused") is ("Liger" in loaded)
