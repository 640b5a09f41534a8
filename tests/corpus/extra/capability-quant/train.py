import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

major, _ = torch.cuda.get_device_capability()
if major >= 8:
    attn_implementation = "flash_attention_2"
    torch_dtype = torch.bfloat16
else:
    attn_implementation = "eager"
    torch_dtype = torch.float16
model = AutoModelForCausalLM.from_pretrained(
    "google/gemma-2-9b-it",
    quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_compute_dtype=torch_dtype,
                                           bnb_4bit_quant_storage=torch_dtype),
    attn_implementation=attn_implementation, device_map="auto")
trainer = SFTTrainer(
    model=model,
    args=SFTConfig("o", per_device_train_batch_size=1, gradient_accumulation_steps=2, fp16=torch_dtype == torch.float16,
                   bf16=torch_dtype == torch.bfloat16, max_length=512, optim="paged_adamw_32bit"),
    train_dataset=load_dataset("trl-lib/Capybara", split="train"),
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=["up_proj", "down_proj"]))
trainer.train()
