import wandb, torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
sweep_config = {"method": "random", "parameters": {"batch_size": {"values": [4, 8]}, "lr": {"min": 1e-5, "max": 1e-3}, "epochs": {"value": 3}}}
sweep_id = wandb.sweep(sweep_config, project="x")
def train(config=None):
    with wandb.init(config=config):
        config = wandb.config
        model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.bfloat16)
        args = TrainingArguments("o", per_device_train_batch_size=config.batch_size, learning_rate=config.lr, bf16=True)
        Trainer(model, args, train_dataset=[]).train()
wandb.agent(sweep_id, train, count=5)
