from enum import Enum
from typing import Annotated

import torch
import typer
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

app = typer.Typer()


class Optim(str, Enum):
    fused = "adamw_torch_fused"
    eight = "adamw_bnb_8bit"


@app.command()
def evaluate(path: str):
    print(path)


@app.command()
def finetune(
    model: str,
    batch_size: Annotated[int, typer.Option(help="per device")] = 2,
    accumulate: int = typer.Option(4, "--accumulate", "-a"),
    optim: Optim = Optim.eight,
    checkpointing: bool = True,
):
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    args = TrainingArguments(
        "out",
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulate,
        optim=optim.value,
        gradient_checkpointing=checkpointing,
    )
    Trainer(net, args, train_dataset=load_dataset("imdb", split="train")).train()


if __name__ == "__main__":
    app()
