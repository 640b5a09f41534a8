import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class MyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        return super().compute_loss(model, inputs, return_outputs)


def train(model, data):
    args = TrainingArguments("o", per_device_train_batch_size=4)
    trainer = MyTrainer(model=model, args=args, train_dataset=data)
    trainer.train()


if __name__ == "__main__":
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    trainer = MyTrainer(model=model, args=TrainingArguments("o", per_device_eval_batch_size=8), eval_dataset=[])
    print(trainer.evaluate())
