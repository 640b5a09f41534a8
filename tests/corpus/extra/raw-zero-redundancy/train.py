import contextlib
import os

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

from data import Tokens

ACCUM = 4
BLOCK = 1024


def setup():
    dist.init_process_group(backend="nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def main():
    setup()
    cfg = GPT2Config(n_layer=24, n_head=16, n_embd=1024, n_positions=BLOCK)
    model = GPT2LMHeadModel(cfg).cuda()
    model = DistributedDataParallel(model)
    opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=3e-4)
    for step, batch in enumerate(DataLoader(Tokens(BLOCK), batch_size=8)):
        last = (step + 1) % ACCUM == 0
        with contextlib.nullcontext() if last else model.no_sync():
            with torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16, enabled=True):
                loss = model(batch, labels=batch).loss / ACCUM
            loss.backward()
        if last:
            opt.step()
            opt.zero_grad()


if __name__ == "__main__":
    main()
