import argparse
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--micro", "-m", type=int, default=1)
parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
parser.add_argument("--total", type=int, default=64)
args = parser.parse_args(["--micro", "4", "--dtype", "bf16"])
args.total = args.total // 2
opts = vars(args)
opts["accum"] = opts["total"] // opts["micro"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
model = AutoModelForCausalLM.from_pretrained("state-spaces/mamba-1.4b-hf", dtype=DTYPES[opts["dtype"]])
t = TrainingArguments("o", per_device_train_batch_size=opts["micro"], gradient_accumulation_steps=args.accum, bf16="bf16" == args.dtype)
Trainer(model, t, train_dataset=load_dataset("imdb", split="train")).train()
