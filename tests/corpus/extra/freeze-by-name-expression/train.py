import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.bfloat16)
for n, p in model.named_parameters():
    p.requires_grad = "ln_f" in n or n.startswith("transformer.h.11")
args = TrainingArguments("out", per_device_train_batch_size=4, bf16=True)
Trainer(model=model, args=args, train_dataset=train_set).train()
