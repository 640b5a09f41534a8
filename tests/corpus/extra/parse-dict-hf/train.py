import sys
from dataclasses import asdict, dataclass, field
from typing import Literal

import torch
from datasets import load_dataset
from transformers import AutoModelForMaskedLM, DataCollatorForLanguageModeling, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Base(TrainingArguments):
    output_dir: str = "out"
    per_device_train_batch_size: int = 12
    bf16: bool = True


@dataclass
class Mine(Base):
    gradient_accumulation_steps: int = 3
    block: int = 256
    model: str = field(default="google-bert/bert-base-uncased", metadata={"help": "the checkpoint"})
    mode: Literal["mlm", "clm"] = "mlm"

    def __post_init__(self):
        self.optim = "adamw_torch"
        super().__post_init__()


(args,) = HfArgumentParser(Mine).parse_dict({"block": 384, "gradient_checkpointing": True}, allow_extra_keys=True)
tok = AutoTokenizer.from_pretrained(args.model)
model = AutoModelForMaskedLM.from_pretrained(args.model, dtype=torch.float32)
data = load_dataset("wikitext", "wikitext-103-raw-v1", split="train").map(
    lambda x: tok(x["text"], truncation=True, padding="max_length", max_length=args.block))
Trainer(model=model, args=args, data_collator=DataCollatorForLanguageModeling(tok, mlm_probability=0.15), train_dataset=data).train()
