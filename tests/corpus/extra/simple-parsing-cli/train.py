from dataclasses import dataclass

from datasets import load_dataset
from simple_parsing import ArgumentParser
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


@dataclass
class ModelOptions:
    name: str = "gpt2"


@dataclass
class TrainOptions:
    micro: int = 8
    accum: int = 2
    ckpt: bool = False


parser = ArgumentParser()
parser.add_arguments(ModelOptions, dest="model")
parser.add_arguments(TrainOptions, dest="train")
args = parser.parse_args()
m, t = args.model, args.train
net = AutoModelForCausalLM.from_pretrained(m.name, dtype="float32")
targs = TrainingArguments("o", per_device_train_batch_size=t.micro, gradient_accumulation_steps=t.accum, gradient_checkpointing=t.ckpt)
Trainer(net, targs, train_dataset=load_dataset("imdb", split="train")).train()
