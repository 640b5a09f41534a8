import argparse

import torch
from datasets import load_dataset
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def load():
    p = argparse.ArgumentParser()
    p.add_argument("--config", default="configs/base.yaml")
    known, rest = p.parse_known_args()
    return OmegaConf.merge(OmegaConf.load(known.config), OmegaConf.from_dotlist(rest))


cfg = load()
model = AutoModelForCausalLM.from_pretrained(cfg.model.name, dtype=getattr(torch, cfg.model.dtype))
args = TrainingArguments("o", per_device_train_batch_size=cfg.optim.batch, gradient_accumulation_steps=cfg.optim.accum, optim=cfg.optim.name, bf16=True)
Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train")).train()
