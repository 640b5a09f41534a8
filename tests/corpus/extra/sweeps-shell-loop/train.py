import argparse
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

ap = argparse.ArgumentParser()
ap.add_argument("--model", default="gpt2")
ap.add_argument("--bs", type=int, default=8)
a = ap.parse_args()
model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
args = TrainingArguments("out", per_device_train_batch_size=a.bs, bf16=True)
Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train")).train()
