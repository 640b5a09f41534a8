import json
import tomllib
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

HERE = Path(__file__).parent
cfg = SimpleNamespace(**json.loads((HERE / "cfg.json").read_text()))
with open(HERE / "hw.toml", "rb") as f:
    hw = tomllib.load(f)
ns = Namespace(**hw["train"])
model = AutoModelForCausalLM.from_pretrained(cfg.base, dtype=getattr(torch, cfg.dtype))
args = TrainingArguments("o", per_device_train_batch_size=ns.micro, gradient_accumulation_steps=ns.accum, bf16=cfg.dtype == "bfloat16",
                         optim=cfg.optim)
Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train")).train()
