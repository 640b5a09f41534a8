import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument("--bs", type=int, default=8)
a = p.parse_args()
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o", per_device_train_batch_size=a.bs)).train()
