import argparse, torch, os
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument("--model", type=str, required=True)
p.add_argument("--bs", type=int, default=8)
p.add_argument("--ga", type=int, default=1)
p.add_argument("--bf16", action="store_true")
p.add_argument("--gc", action="store_true")
a = p.parse_args()
model = AutoModelForCausalLM.from_pretrained(a.model, torch_dtype=torch.float32)
Trainer(model, TrainingArguments("o", per_device_train_batch_size=a.bs, gradient_accumulation_steps=a.ga, bf16=a.bf16, gradient_checkpointing=a.gc), train_dataset=[]).train()
