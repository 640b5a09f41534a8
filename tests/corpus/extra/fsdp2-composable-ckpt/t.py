import torch
import torch.distributed as dist
from torch.distributed._composable.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.data import DataLoader
from transformers import AutoConfig, AutoModelForCausalLM

from data import Pack

SEQ = 8192


def build():
    cfg = AutoConfig.from_pretrained("meta-llama/Llama-3.1-8B")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(cfg, dtype=torch.float32, attn_implementation="flash_attention_2")
    for i, block in enumerate(model.model.layers):
        model.model.layers[i] = checkpoint_wrapper(block)
    kw = dict(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), offload_policy=CPUOffloadPolicy())
    for block in model.model.layers:
        fully_shard(block, **kw)
    return fully_shard(model, **kw)


def main():
    dist.init_process_group("cpu:gloo,cuda:nccl")
    model = build()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-5, foreach=True)
    for batch in DataLoader(Pack(SEQ), batch_size=1):
        loss = model(input_ids=batch.cuda(), labels=batch.cuda()).loss
        loss.backward()
        opt.step()
        opt.zero_grad()


main()
