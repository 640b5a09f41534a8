import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, HqqConfig, Trainer, TrainingArguments

cfg = HqqConfig(nbits=4, group_size=64)
model = AutoModelForSequenceClassification.from_pretrained("meta-llama/Llama-3.1-8B", num_labels=5, dtype=torch.bfloat16, device_map="cuda", quantization_config=cfg)
model.config.pad_token_id = model.config.eos_token_id
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=8, target_modules=r".*\.(q|v)_proj", modules_to_save=["score"], task_type="SEQ_CLS", use_dora=False))
args = TrainingArguments(output_dir="out", per_device_train_batch_size=8, per_device_eval_batch_size=8, bf16=True, bf16_full_eval=True,
                         gradient_checkpointing=True, gradient_checkpointing_kwargs=dict(use_reentrant=False), eval_strategy="steps", eval_steps=50)
ds = load_dataset("yelp_review_full")
Trainer(model=model, args=args, train_dataset=ds["train"], eval_dataset=ds["test"]).train()
