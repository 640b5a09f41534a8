from absl import app, flags
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

FLAGS = flags.FLAGS
flags.DEFINE_integer("batch", 1, "batch size")
flags.DEFINE_integer("accum", 2, "accumulation")
flags.DEFINE_bool("gc", True, "checkpointing")
flags.DEFINE_string("model", None, "model", required=True)


def main(argv):
    del argv
    model = AutoModelForCausalLM.from_pretrained(FLAGS.model, dtype=torch.bfloat16)
    args = TrainingArguments("o", per_device_train_batch_size=FLAGS.batch, gradient_accumulation_steps=FLAGS.accum, gradient_checkpointing=FLAGS.gc, bf16=True)
    Trainer(model=model, args=args, train_dataset=load_dataset("imdb", split="train")).train()


if __name__ == "__main__":
    app.run(main)
