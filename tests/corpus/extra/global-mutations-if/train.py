import argparse
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

p = argparse.ArgumentParser()
p.add_argument("--size", choices=["s", "m", "l"], required=True)
p.add_argument("--steps", type=int, required=True)
p.add_argument("--fp", choices=["bf16", "fp16"], default="bf16")
a = p.parse_args()
sizes = {"s": ("gpt2", 32), "m": ("gpt2-medium", 16), "l": ("gpt2-large", 8)}
name, bs = sizes[a.size]
tok = AutoTokenizer.from_pretrained(name, model_max_length=768)
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
ds = load_dataset("imdb", split="train").map(lambda r: tok(r["text"], truncation=True), batched=True)
t = TrainingArguments("o", per_device_train_batch_size=bs, gradient_accumulation_steps=a.steps, bf16=a.fp == "bf16", fp16=a.fp == "fp16")
Trainer(model=model, args=t, train_dataset=ds, processing_class=tok).train()
