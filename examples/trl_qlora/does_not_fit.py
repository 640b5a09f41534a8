# memlint: gpu=24GB
"""QLoRA of Llama-3.1-8B with TRL: 4-bit base, LoRA on every linear layer, one 24 GB card, without activation checkpointing."""

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained(
    "meta-llama/Llama-3.1-8B",
    quantization_config=BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    ),
    dtype=torch.bfloat16,
)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules="all-linear",
    task_type="CAUSAL_LM",
)

args = SFTConfig(
    output_dir="out/llama-8b-qlora",
    max_length=2048,
    packing=True,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    gradient_checkpointing=False,
    bf16=True,
    optim="paged_adamw_8bit",
    learning_rate=2e-4,
    max_steps=1000,
)

trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=load_dataset("tatsu-lab/alpaca", split="train"),
    peft_config=peft_config,
)
trainer.train()
