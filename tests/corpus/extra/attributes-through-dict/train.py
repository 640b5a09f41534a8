import argparse, json
from transformers import TrainingArguments, Trainer, AutoModelForCausalLM
p = argparse.ArgumentParser()
p.add_argument("--model", default="gpt2")
p.add_argument("--batch_size", type=int, default=1)
p.add_argument("--accum", type=int, default=1)
p.add_argument("--bf16", action="store_true")
args = p.parse_args([])
vars(args)["batch_size"] = 6
args.__dict__.update({"accum": 3})
for k, v in {"bf16": True}.items():
    setattr(args, k, v)
model = AutoModelForCausalLM.from_pretrained(args.model)
Trainer(model=model, args=TrainingArguments("o", per_device_train_batch_size=args.batch_size, gradient_accumulation_steps=args.accum, bf16=args.bf16)).train()
