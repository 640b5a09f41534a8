import argparse
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

ap = argparse.ArgumentParser()
ap.add_argument("--model", default="gpt2")
ap.add_argument("--bs", type=int, default=8)
ap.add_argument("--seq", type=int, default=512)
a = ap.parse_args()
tok = AutoTokenizer.from_pretrained(a.model)
model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
ds = load_dataset("imdb", split="train").map(lambda r: tok(r["text"], truncation=True, max_length=a.seq))
args = TrainingArguments("out", per_device_train_batch_size=a.bs, bf16=True)
Trainer(model=model, args=args, train_dataset=ds).train()
