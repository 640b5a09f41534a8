import argparse
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument("--model")
p.add_argument("--bs", type=int, default=8)
a = p.parse_args()
model = AutoModelForCausalLM.from_pretrained(a.model, dtype="bfloat16")
Trainer(model, TrainingArguments("o", per_device_train_batch_size=a.bs, bf16=True, gradient_checkpointing=True), train_dataset=load_dataset("imdb")["train"]).train()
