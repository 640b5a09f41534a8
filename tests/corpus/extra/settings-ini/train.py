import configparser, torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
cfg = configparser.ConfigParser()
cfg.read("train.ini")
bs = cfg.getint("train", "batch_size")
model = AutoModelForCausalLM.from_pretrained(cfg["model"]["name"], torch_dtype=torch.bfloat16)
args = TrainingArguments("o", per_device_train_batch_size=bs, bf16=cfg.getboolean("train", "bf16"), gradient_accumulation_steps=int(cfg.get("train", "ga", fallback="2")),
  gradient_checkpointing=cfg["train"].getboolean("gc"))
Trainer(model, args, train_dataset=[]).train()
