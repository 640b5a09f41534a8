import argparse
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument("--bs", type=int, default=8)
a = p.parse_args()
Trainer(AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.float32), TrainingArguments("o", per_device_train_batch_size=a.bs), train_dataset=[]).train()
