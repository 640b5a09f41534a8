"""Launch with: torchrun --nproc_per_node 8 train.py --batch 64"""
import enum
import itertools
from collections import namedtuple
from contextlib import nullcontext

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

Preset = namedtuple("Preset", "model micro accum", defaults=[2])


class Size(enum.Enum):
    S = Preset("HuggingFaceTB/SmolLM2-135M", 32)
    M = Preset("HuggingFaceTB/SmolLM2-360M", 16, 4)


PRESETS = {s.name.lower(): s.value for s in Size}
choice = "m"
preset = PRESETS[choice]
name, *rest = preset
kw = dict(zip(("per_device_train_batch_size", "gradient_accumulation_steps"), rest))
kw.update(bf16=(ok := True), tf32=ok)


def make(**overrides):
    def inner():
        return TrainingArguments("o", **(kw | overrides))
    return inner


with nullcontext():
    model = AutoModelForCausalLM.from_pretrained(name, dtype="bfloat16")
    Trainer(model=model, args=make(optim="adafactor" if not ok else "sgd")(), train_dataset=load_dataset("imdb", split="train")).train()
