import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

try:
    import flash_attn  # noqa: F401
    attn = "flash_attention_2"
except ImportError:
    attn = "sdpa"

big = torch.cuda.get_device_properties(0).total_memory > 40 * 1024**3
bs = 8 if big else 2
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-1.7B", dtype=torch.bfloat16, attn_implementation=attn)
args = TrainingArguments("o", per_device_train_batch_size=bs, gradient_accumulation_steps=32 // bs, bf16=True)
Trainer(model, args, train_dataset=load_dataset("imdb", split="train")).train()
