# memlint: gpu=rtx-3090
"""The classic: Llama-2-7B, QLoRA, micro-batch 8, context 2048, one 24 GB card.

`memlint estimate` on this file explains every part of the answer: weights in NF4 with double quantisation, embeddings and
output head in 16 bit, the checkpoints kept by each layer, the logits, and one recomputed layer.
"""

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

MODEL = "meta-llama/Llama-2-7b-hf"
CONTEXT = 2048

tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = tokenizer.eos_token

model = AutoModelForCausalLM.from_pretrained(
    MODEL,
    quantization_config=BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    ),
    dtype=torch.bfloat16,
)
model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)
model = get_peft_model(
    model,
    LoraConfig(r=64, lora_alpha=16, lora_dropout=0.1, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
)

data = load_dataset("timdettmers/openassistant-guanaco", split="train")
data = data.map(
    lambda row: tokenizer(row["text"], truncation=True, padding="max_length", max_length=CONTEXT),
    remove_columns=["text"],
)

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="out/llama2-7b-qlora",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        bf16=True,
        optim="paged_adamw_32bit",
        learning_rate=2e-4,
        max_steps=1000,
    ),
    train_dataset=data,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()
