# memlint: gpu=l40s
"""Accelerate with gradient accumulation: full fine-tuning of Qwen2.5-1.5B in bf16 mixed precision on one 48 GB card."""

import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "Qwen/Qwen2.5-1.5B"


def main():
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=8)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    model.gradient_checkpointing_enable()

    def collate(rows):
        batch = tokenizer(
            [row["text"] for row in rows],
            truncation=True,
            padding="max_length",
            max_length=1024,
            return_tensors="pt",
        )
        batch["labels"] = batch["input_ids"].clone()
        return batch

    data = load_dataset("wikitext", "wikitext-2-raw-v1", split="train")
    loader = DataLoader(data, batch_size=2, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
