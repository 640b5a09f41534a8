from collections import ChainMap

import torch
from ml_collections import config_dict
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

DEFAULTS = {"bs": 8, "ga": 1, "bf16": True, "name": "gpt2"}
conf = ChainMap({"bs": 3}, DEFAULTS)
config = config_dict.ConfigDict({"checkpoint": True})
config.model = config_dict.ConfigDict()
config.model.name = "facebook/opt-125m"

model = AutoModelForCausalLM.from_pretrained(config.model.name, dtype=torch.bfloat16)
args = TrainingArguments(
    "o",
    per_device_train_batch_size=conf["bs"],
    gradient_accumulation_steps=conf["ga"],
    bf16=conf.get("bf16"),
    optim=conf.get("optim", "adafactor"),
    gradient_checkpointing=config.checkpoint,
)
Trainer(model, args, train_dataset=train_set).train()
