import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

model_name = "HuggingFaceTB/SmolLM2-1.7B"
dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}["bf16"]
model = AutoModelForCausalLM.from_pretrained(model_name, dtype=dtype, attn_implementation="sdpa")
tokenizer = AutoTokenizer.from_pretrained(model_name)
ds = load_dataset("trl-lib/ultrafeedback_binarized")
config = ORPOConfig(output_dir="orpo", per_device_train_batch_size=2, gradient_accumulation_steps=8, max_length=2048,
                    beta=0.1, optim="paged_adamw_8bit", eval_strategy="steps", eval_steps=0.2)
trainer = ORPOTrainer(model=model, args=config, train_dataset=ds["train"], eval_dataset=ds["test"], processing_class=tokenizer)
trainer.train()
