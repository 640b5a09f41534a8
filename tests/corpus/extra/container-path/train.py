import argparse
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

ap = argparse.ArgumentParser()
ap.add_argument("--bs", type=int, default=8)
a = ap.parse_args()
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-Nemo-Base-2407", dtype="bfloat16")
Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=a.bs, bf16=True), train_dataset=load_dataset("imdb", split="train")).train()
