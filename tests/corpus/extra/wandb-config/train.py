import torch
import wandb
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

run = wandb.init(project="x", config={"batch_size": 4, "model": "gpt2", "ga": 2})
config = wandb.config
config.eval_batch = 16
model = AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.bfloat16)
args = TrainingArguments(
    "o",
    per_device_train_batch_size=run.config["batch_size"],
    per_device_eval_batch_size=config.eval_batch,
    gradient_accumulation_steps=wandb.config.ga,
    eval_strategy="epoch",
    bf16=True,
)
Trainer(model, args, train_dataset=train_set, eval_dataset=eval_set).train()
