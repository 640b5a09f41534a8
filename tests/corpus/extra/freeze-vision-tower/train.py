import torch
from transformers import Qwen2VLForConditionalGeneration, Trainer, TrainingArguments
m = Qwen2VLForConditionalGeneration.from_pretrained("Qwen/Qwen2-VL-2B-Instruct", dtype=torch.bfloat16)
for p in m.visual.parameters():
    p.requires_grad = False
Trainer(m, TrainingArguments("o", per_device_train_batch_size=2, bf16=True), train_dataset=[]).train()
