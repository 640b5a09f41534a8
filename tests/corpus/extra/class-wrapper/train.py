import torch
from datasets import load_dataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments


class Config:
    checkpoint = "google/mt5-base"
    max_source = 768
    micro = 2
    total = 32

    @property
    def accumulation(self):
        return self.total // self.micro


class Summarizer:
    def __init__(self, cfg, lr=1e-4):
        self.cfg = cfg
        self.lr = lr
        self.tokenizer = AutoTokenizer.from_pretrained(cfg.checkpoint)
        self.model = AutoModelForSeq2SeqLM.from_pretrained(cfg.checkpoint, dtype=torch.float32)

    def encode(self, rows):
        return self.tokenizer(rows["document"], max_length=self.cfg.max_source, truncation=True)

    def arguments(self):
        return Seq2SeqTrainingArguments(
            output_dir="mt5", learning_rate=self.lr, optim="adafactor",
            per_device_train_batch_size=self.cfg.micro, gradient_accumulation_steps=self.cfg.accumulation,
            gradient_checkpointing=True)

    def fit(self):
        data = load_dataset("xsum", split="train").map(self.encode, batched=True)
        trainer = Seq2SeqTrainer(self.model, self.arguments(), DataCollatorForSeq2Seq(self.tokenizer), data)
        trainer.train()


def main():
    Summarizer(Config()).fit()


main()
