import sys
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

DO_TRAIN = False


def main():
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    trainer = Trainer(model=model, args=TrainingArguments("o"))
    if DO_TRAIN:
        trainer.train()
    print(trainer.predict([]))
    return
    trainer.train()


if __name__ == "__main__":
    sys.exit(main())
