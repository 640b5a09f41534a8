import argparse, torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument("--model_id", type=str)
p.add_argument("--per_device_train_batch_size", type=int, default=8)
p.add_argument("--bf16", type=lambda x: x.lower() == "true", default=False)
p.add_argument("--gradient_checkpointing", type=bool, default=True)
a, _ = p.parse_known_args()
model = AutoModelForCausalLM.from_pretrained(a.model_id, torch_dtype=torch.float32)
Trainer(model, TrainingArguments("o", per_device_train_batch_size=a.per_device_train_batch_size, bf16=a.bf16, gradient_checkpointing=a.gradient_checkpointing), train_dataset=[]).train()
