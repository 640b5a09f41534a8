from dataclasses import dataclass, field
from typing import Optional

import transformers
from datasets import load_dataset


@dataclass
class ModelArguments:
    model_name_or_path: Optional[str] = field(default="facebook/opt-125m")


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    cache_dir: Optional[str] = field(default=None)
    optim: str = field(default="adamw_torch")
    model_max_length: int = field(default=512, metadata={"help": "Maximum sequence length."})


def train():
    parser = transformers.HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path, cache_dir=training_args.cache_dir, dtype="bfloat16")
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        model_args.model_name_or_path, model_max_length=training_args.model_max_length, padding_side="right")
    data = load_dataset("imdb", split="train").map(
        lambda r: tokenizer(r["text"], max_length=tokenizer.model_max_length, truncation=True))
    trainer = transformers.Trainer(model=model, processing_class=tokenizer, args=training_args, train_dataset=data)
    trainer.train()


if __name__ == "__main__":
    train()
