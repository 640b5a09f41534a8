import argparse
import deepspeed
import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam
from transformers import AutoModelForCausalLM
from corpus import Stream

p = argparse.ArgumentParser()
p.add_argument("--local_rank", type=int, default=0)
p.add_argument("--ckpt", action="store_true")
p = deepspeed.add_config_arguments(p)
args = p.parse_args()
model = AutoModelForCausalLM.from_pretrained("facebook/opt-13b", torch_dtype=torch.bfloat16)
if args.ckpt:
    model.gradient_checkpointing_enable()
optimizer = DeepSpeedCPUAdam(model.parameters(), lr=1e-5)
engine, optimizer, loader, _ = deepspeed.initialize(args=args, model=model, optimizer=optimizer, training_data=Stream(2048))
for step, batch in enumerate(loader):
    loss = engine(input_ids=batch, labels=batch).loss
    engine.backward(loss)
    engine.step()
