import copy

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, TrainingArguments, Trainer

COMMON = dict(output_dir="x", bf16=True, per_device_train_batch_size=2, optim="adamw_torch")
LONG = {**COMMON, "gradient_checkpointing": True, "per_device_train_batch_size": 1}
FINAL = LONG | {"gradient_accumulation_steps": 12}
used = copy.deepcopy(FINAL)
used.setdefault("optim", "sgd")
used.pop("optim")
used["optim"] = "lion_8bit" if "bf16" in used else "sgd"
load = dict(pretrained_model_name_or_path="stabilityai/stablelm-3b-4e1t")
load |= {"dtype": torch.bfloat16}
model = AutoModelForCausalLM.from_pretrained(**load)
trainer = Trainer(**{"model": model, "args": TrainingArguments(**used), "train_dataset": load_dataset("imdb", split="train")})
trainer.train()
