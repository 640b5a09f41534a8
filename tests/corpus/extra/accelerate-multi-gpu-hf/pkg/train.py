import click
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


@click.command()
@click.option("--bs", default=1, type=int)
@click.option("--gc/--no-gc", default=False)
@click.option("--name", "model_name", default="EleutherAI/pythia-6.9b", show_default=True)
def main(bs, gc, model_name):
    model = AutoModelForCausalLM.from_pretrained(model_name, dtype="float32")
    args = TrainingArguments("o", per_device_train_batch_size=bs, gradient_checkpointing=gc)
    Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train")).train()


if __name__ == "__main__":
    main()
