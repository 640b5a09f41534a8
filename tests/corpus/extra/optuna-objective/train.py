import optuna
import torch
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

data = load_dataset("glue", "mnli")


def objective(trial):
    bs = trial.suggest_categorical("bs", [8, 16, 32])
    model = AutoModelForSequenceClassification.from_pretrained("microsoft/deberta-v3-large", dtype=torch.float32, num_labels=3)
    args = TrainingArguments("o", per_device_train_batch_size=bs, learning_rate=trial.suggest_float("lr", 1e-6, 1e-4, log=True), bf16=True)
    trainer = Trainer(model=model, args=args, train_dataset=data["train"])
    trainer.train()
    return trainer.state.best_metric


study = optuna.create_study(direction="maximize")
study.optimize(objective, n_trials=10)
