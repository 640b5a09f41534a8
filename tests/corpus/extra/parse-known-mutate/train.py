import os
import sys
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArgs:
    model_name_or_path: str = field(metadata={"help": "x"})
    lora: bool = False
    lora_r: int = 16


@dataclass
class DataArgs:
    max_seq_length: int = 1024


parser = HfArgumentParser((ModelArgs, DataArgs, TrainingArguments))
if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
    margs, dargs, targs = parser.parse_json_file(json_file=os.path.abspath(sys.argv[1]))
else:
    margs, dargs, targs = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(margs.model_name_or_path, dtype=torch.bfloat16)
tok = AutoTokenizer.from_pretrained(margs.model_name_or_path)
if margs.lora:
    model = get_peft_model(model, LoraConfig(r=margs.lora_r, lora_alpha=2 * margs.lora_r, target_modules="all-linear"))
    targs.gradient_accumulation_steps = targs.gradient_accumulation_steps * 4
ds = load_dataset("imdb", split="train").map(lambda r: tok(r["text"], truncation=True, max_length=min(dargs.max_seq_length, 4096)))
trainer = Trainer(model=model, args=targs, train_dataset=ds)
trainer.train()
