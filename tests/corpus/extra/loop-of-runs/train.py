import torch
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

ds = load_dataset("glue", "cola")
for seed in range(5):
    model = AutoModelForSequenceClassification.from_pretrained("google-bert/bert-large-uncased", dtype=torch.float32)
    args = TrainingArguments(f"out-{seed}", seed=seed, per_device_train_batch_size=32, optim="sgd", bf16=True)
    Trainer(model=model, args=args, train_dataset=ds["train"]).train()
