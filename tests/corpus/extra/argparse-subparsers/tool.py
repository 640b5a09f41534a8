import argparse
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def train(args):
    kw = {"bf16": args.precision == "bf16", "fp16": args.precision == "fp16"}
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    targs = TrainingArguments("o", per_device_train_batch_size=args.bs, gradient_accumulation_steps=args.accum, **kw)
    Trainer(model=model, args=targs, train_dataset=load_dataset("imdb", split="train")).train()


def score(args):
    print(args.model)


def parser():
    root = argparse.ArgumentParser()
    root.add_argument("--seed", type=int, default=0)
    subs = root.add_subparsers(dest="cmd", required=True)
    t = subs.add_parser("train")
    t.add_argument("--model", required=True)
    t.add_argument("--bs", type=int, default=1)
    t.add_argument("--accum", type=int, default=3)
    t.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
    t.set_defaults(func=train)
    s = subs.add_parser("score")
    s.add_argument("--model")
    s.set_defaults(func=score)
    return root


if __name__ == "__main__":
    args = parser().parse_args()
    args.func(args)
