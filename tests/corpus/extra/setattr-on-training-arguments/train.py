
from trl import SFTTrainer, SFTConfig
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
import torch
cfg = SFTConfig(output_dir="o")
cfg.per_device_train_batch_size = 2
for name, value in dict(gradient_accumulation_steps=16, max_length=2048, packing=True, bf16=True).items():
    setattr(cfg, name, value)
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", quantization_config=bnb)
SFTTrainer(model=model, args=cfg, peft_config=LoraConfig(r=32)).train()
