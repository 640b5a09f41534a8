import argparse
from transformers import TrainingArguments, Trainer, AutoModelForCausalLM
p = argparse.ArgumentParser(fromfile_prefix_chars="@")
p.add_argument("--model", default="gpt2")
p.add_argument("--batch_size", type=int, default=1)
p.add_argument("--accum", type=int, default=1)
a = p.parse_args()
model = AutoModelForCausalLM.from_pretrained(a.model)
Trainer(model=model, args=TrainingArguments("o", per_device_train_batch_size=a.batch_size, gradient_accumulation_steps=a.accum)).train()
