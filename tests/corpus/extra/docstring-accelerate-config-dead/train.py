# %% [markdown]
# # Training
# %%
import torch
from transformers import AutoModelForCausalLM, TrainingArguments, Trainer
from datasets import load_dataset

USE_LORA = False
FAST = not USE_LORA
# %%
model = AutoModelForCausalLM.from_pretrained("openlm-research/open_llama_3b_v2", dtype=torch.float16 if not FAST else torch.bfloat16)
if USE_LORA:
    from peft import LoraConfig, get_peft_model
    model = get_peft_model(model, LoraConfig(r=8))
else:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
# %%
args = TrainingArguments("o", per_device_train_batch_size=1 if USE_LORA else 2, bf16=FAST, fp16=not FAST, optim=["adamw_torch", "adafactor"][FAST])
trainer = Trainer(model, args, train_dataset=load_dataset("imdb", split="train"))
# %%
trainer.train()
