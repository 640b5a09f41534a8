# nanoGPT like: own batches
import torch, numpy as np, math, os
from transformers import GPT2LMHeadModel
batch_size = 12; block_size = 1024; gradient_accumulation_steps = 5 * 8; device = "cuda"; eval_interval = 200; eval_iters = 20
dtype = 'bfloat16' if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else 'float16'
ptdtype = {'float32': torch.float32, 'bfloat16': torch.bfloat16, 'float16': torch.float16}[dtype]
ctx = torch.amp.autocast(device_type='cuda', dtype=ptdtype)
def get_batch(split):
    data = np.memmap(f'data/{split}.bin', dtype=np.uint16, mode='r')
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i:i+block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i+1:i+1+block_size]).astype(np.int64)) for i in ix])
    return x.to(device), y.to(device)
@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ['train', 'val']:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            with ctx:
                losses[k] = model(X, labels=Y).loss.item()
        out[split] = losses.mean()
    model.train()
    return out
model = GPT2LMHeadModel.from_pretrained("gpt2-medium").to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
scaler = torch.cuda.amp.GradScaler(enabled=(dtype == 'float16'))
X, Y = get_batch('train')
iter_num = 0
while True:
    if iter_num % eval_interval == 0:
        print(estimate_loss())
    for micro_step in range(gradient_accumulation_steps):
        with ctx:
            loss = model(X, labels=Y).loss / gradient_accumulation_steps
        X, Y = get_batch('train')
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer); scaler.update(); optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    if iter_num > 600: break
