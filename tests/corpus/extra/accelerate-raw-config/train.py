import argparse
import math

import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding,
                          default_data_collator, get_scheduler)


def parse_args():
    parser = argparse.ArgumentParser(description="Finetune")
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--pad_to_max_length", action="store_true")
    parser.add_argument("--model_name_or_path", type=str, required=True)
    parser.add_argument("--per_device_train_batch_size", type=int, default=8)
    parser.add_argument("--per_device_eval_batch_size", type=int, default=8)
    parser.add_argument("--weight_decay", type=float, default=0.0)
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    args = parser.parse_args()
    return args


def main():
    args = parse_args()
    accelerator = Accelerator()
    config = AutoConfig.from_pretrained(args.model_name_or_path, num_labels=2)
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForSequenceClassification.from_pretrained(args.model_name_or_path, config=config, dtype=torch.float32)
    padding = "max_length" if args.pad_to_max_length else False

    def preprocess_function(examples):
        result = tokenizer(*(examples["sentence"],), padding=padding, max_length=args.max_length, truncation=True)
        result["labels"] = examples["label"]
        return result

    with accelerator.main_process_first():
        processed = load_dataset("glue", "sst2").map(preprocess_function, batched=True)
    if args.pad_to_max_length:
        data_collator = default_data_collator
    else:
        data_collator = DataCollatorWithPadding(tokenizer)
    train_dataloader = DataLoader(processed["train"], shuffle=True, collate_fn=data_collator, batch_size=args.per_device_train_batch_size)
    eval_dataloader = DataLoader(processed["validation"], collate_fn=data_collator, batch_size=args.per_device_eval_batch_size)
    no_decay = ["bias", "LayerNorm.weight"]
    grouped = [{"params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)], "weight_decay": args.weight_decay},
               {"params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(grouped, lr=5e-5)
    steps = math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
    sched = get_scheduler(name="linear", optimizer=optimizer, num_warmup_steps=0, num_training_steps=steps)
    model, optimizer, train_dataloader, eval_dataloader, sched = accelerator.prepare(model, optimizer, train_dataloader, eval_dataloader, sched)
    for epoch in range(args.num_train_epochs):
        model.train()
        for step, batch in enumerate(train_dataloader):
            outputs = model(**batch)
            loss = outputs.loss
            loss = loss / args.gradient_accumulation_steps
            accelerator.backward(loss)
            if step % args.gradient_accumulation_steps == 0 or step == len(train_dataloader) - 1:
                optimizer.step()
                sched.step()
                optimizer.zero_grad()
        model.eval()
        for batch in eval_dataloader:
            with torch.no_grad():
                model(**batch)


if __name__ == "__main__":
    main()
