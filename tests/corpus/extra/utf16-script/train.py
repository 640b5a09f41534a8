# -*- coding: utf-8 -*-
# Größe: ünïcödé – コメント
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

größe = 4
モデル = "gpt2-large"
print(f"größe = {größe}")
Trainer(AutoModelForCausalLM.from_pretrained(モデル, dtype="bfloat16"), TrainingArguments("ö", per_device_train_batch_size=größe, bf16=True), train_dataset=load_dataset("imdb")["train"]).train()
