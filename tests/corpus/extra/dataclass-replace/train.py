import dataclasses
from dataclasses import dataclass

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer


@dataclass(frozen=True)
class Recipe:
    model: str = "meta-llama/Llama-3.2-1B"
    micro: int = 4
    length: int = 2048
    packing: bool = False


base = Recipe()
recipe = dataclasses.replace(base, micro=2, packing=True)
model = AutoModelForCausalLM.from_pretrained(recipe.model, dtype=torch.bfloat16)
cfg = SFTConfig("o", per_device_train_batch_size=recipe.micro, max_length=recipe.length, packing=recipe.packing)
cfg.gradient_accumulation_steps = 64 // (recipe.micro * 4)
cfg.use_liger_kernel = True
SFTTrainer(model, cfg, train_dataset=load_dataset("trl-lib/Capybara", split="train")).train()
