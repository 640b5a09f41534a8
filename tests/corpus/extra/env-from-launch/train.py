import os
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

env = os.environ
tok = AutoTokenizer.from_pretrained(env["MODEL_NAME"])
model = AutoModelForCausalLM.from_pretrained(env["MODEL_NAME"], dtype=torch.bfloat16)
ds = load_dataset("imdb", split="train").map(lambda r: tok(r["text"], truncation=True, max_length=int(env.get("SEQ", 512))))
args = TrainingArguments("o", per_device_train_batch_size=int(env["MICRO"]), gradient_accumulation_steps=int(os.getenv("ACCUM", "1")),
                         **{env["PRECISION"]: True})
Trainer(model=model, args=args, train_dataset=ds).train()
