from dataclasses import dataclass, field
from datasets import load_dataset
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class M:
    name: str = field(default="facebook/opt-350m")


if __name__ == "__main__":
    m, t = HfArgumentParser([M, TrainingArguments]).parse_args_into_dataclasses()
    Trainer(model=AutoModelForCausalLM.from_pretrained(m.name, dtype="float32"), args=t, train_dataset=load_dataset("imdb")["train"]).train()
