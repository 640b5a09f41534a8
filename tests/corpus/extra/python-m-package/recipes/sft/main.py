import argparse

import yaml
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

from . import DTYPE
from .defaults import ATTN


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--micro", type=int)
    args = parser.parse_args()
    with open(args.config) as handle:
        cfg = yaml.safe_load(handle)
    if args.micro is not None:
        cfg["micro"] = args.micro
    return cfg


def main():
    cfg = parse()
    model = AutoModelForCausalLM.from_pretrained(cfg["model"], dtype=DTYPE, attn_implementation=ATTN)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig("o", per_device_train_batch_size=cfg["micro"], max_length=cfg["seq"], gradient_accumulation_steps=cfg.get("accum", 4)),
        peft_config=LoraConfig(r=cfg["lora"]["r"], lora_alpha=cfg["lora"]["alpha"]),
        train_dataset=load_dataset("trl-lib/Capybara", split="train"),
    )
    trainer.train()


if __name__ == "__main__":
    main()
