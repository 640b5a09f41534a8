import functools
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from tokens import TokenDataset

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("huggyllama/llama-13b", dtype=torch.float32, use_cache=False)
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
model = FSDP(model, auto_wrap_policy=policy, mixed_precision=bf16, sharding_strategy=ShardingStrategy.FULL_SHARD,
             cpu_offload=CPUOffload(offload_params=False), device_id=local_rank, use_orig_params=True)
apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.1)
for x in DataLoader(TokenDataset(length=2048), batch_size=1):
    loss = model(input_ids=x, labels=x).loss
    loss.backward()
    model.clip_grad_norm_(1.0)
    opt.step()
    opt.zero_grad()
