import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

from corpora import packed

cfg = dict(model="HuggingFaceTB/SmolLM2-1.7B", micro=2, accum=16, block=4096, dtype="bfloat16")
device = "cuda:0"
model = AutoModelForCausalLM.from_pretrained(cfg["model"], dtype=getattr(torch, cfg["dtype"]), attn_implementation="sdpa").to(device)
model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
it = iter(DataLoader(packed(cfg["block"]), batch_size=cfg["micro"], num_workers=2))
step = 0
while step < 1000:
    for _ in range(cfg["accum"]):
        ids = next(it).to(device)
        loss = model(input_ids=ids, labels=ids).loss / cfg["accum"]
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    step += 1
