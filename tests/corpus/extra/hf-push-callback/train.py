import evaluate
import numpy as np
from datasets import load_dataset
from transformers import (AutoModelForTokenClassification, AutoTokenizer, DataCollatorForTokenClassification, EarlyStoppingCallback,
                          Trainer, TrainingArguments)

checkpoint = "dslim/" + "bert-base-NER"
raw = load_dataset("conll2003")
tok = AutoTokenizer.from_pretrained(checkpoint, use_fast=True)
metric = evaluate.load("seqeval")


def align(examples, label_all_tokens=True, limit=192):
    enc = tok(examples["tokens"], is_split_into_words=True, truncation=True, max_length=limit)
    enc["labels"] = [[0] * len(x) for x in enc["input_ids"]]
    return enc


def compute(p):
    return {"acc": float(np.mean(p.predictions.argmax(-1) == p.label_ids))}


enc = raw.map(align, batched=True, remove_columns=raw["train"].column_names)
model = AutoModelForTokenClassification.from_pretrained(checkpoint, num_labels=9, ignore_mismatched_sizes=True, dtype="float32")
args = TrainingArguments("ner", eval_strategy="epoch", save_strategy="epoch", per_device_train_batch_size=(bs := 40), per_device_eval_batch_size=bs // 2,
                         load_best_model_at_end=True, half_precision_backend="auto", fp16=True, fp16_full_eval=False) if False else TrainingArguments(
    "ner", eval_strategy="epoch", save_strategy="epoch", per_device_train_batch_size=(bs := 40), per_device_eval_batch_size=bs // 2,
    load_best_model_at_end=True, fp16=True)
trainer = Trainer(model, args, DataCollatorForTokenClassification(tok), enc["train"], enc["validation"], compute_metrics=compute,
                  callbacks=[EarlyStoppingCallback(2)])
trainer.train()
