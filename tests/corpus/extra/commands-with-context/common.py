import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
def run(name, bs, ga, bf16, gc):
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float32)
    Trainer(model, TrainingArguments("o", per_device_train_batch_size=bs, gradient_accumulation_steps=ga, bf16=bf16, gradient_checkpointing=gc), train_dataset=[]).train()

