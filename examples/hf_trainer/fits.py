# memlint: gpu=rtx-4090
"""Full fine-tuning of Qwen2.5-0.5B with the Hugging Face Trainer on one 24 GB card."""

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

MODEL = "Qwen/Qwen2.5-0.5B"
MAX_LENGTH = 1024


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="float32", attn_implementation="sdpa")

    def tokenize(batch):
        return tokenizer(batch["text"], truncation=True, padding="max_length", max_length=MAX_LENGTH)

    data = load_dataset("roneneldan/TinyStories", split="train")
    data = data.map(tokenize, batched=True, remove_columns=data.column_names)

    args = TrainingArguments(
        output_dir="out/qwen-0.5b",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=16,
        learning_rate=1e-5,
        num_train_epochs=1,
        bf16=True,
        gradient_checkpointing=True,
        optim="adamw_torch_fused",
        logging_steps=10,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train()


if __name__ == "__main__":
    main()
