# memlint: gpu=a100-80gb
"""A plain PyTorch loop with autocast and GradScaler: GPT-2 XL in fp16 mixed precision at batch 32."""

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, GPT2LMHeadModel

BATCH_SIZE = 32
CONTEXT = 1024

device = torch.device("cuda")
tokenizer = AutoTokenizer.from_pretrained("gpt2-xl")
tokenizer.pad_token = tokenizer.eos_token
model = GPT2LMHeadModel.from_pretrained("gpt2-xl", dtype=torch.float32).to(device)
model.train()


def collate(rows):
    batch = tokenizer(
        [row["text"] for row in rows],
        truncation=True,
        padding="max_length",
        max_length=CONTEXT,
        return_tensors="pt",
    )
    batch["labels"] = batch["input_ids"].clone()
    return batch


data = load_dataset("wikitext", "wikitext-103-raw-v1", split="train")
loader = DataLoader(data, batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=True)
scaler = torch.amp.GradScaler("cuda")

for step, batch in enumerate(loader):
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    with torch.amp.autocast("cuda", dtype=torch.float16):
        loss = model(**batch).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if step % 100 == 0:
        print(step, loss.item())
