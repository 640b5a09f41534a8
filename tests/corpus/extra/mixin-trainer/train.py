import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from mixins import LoggingMixin


class Weighted(LoggingMixin, Trainer):
    def __init__(self, *args, weight=1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.weight = weight

    def create_optimizer(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.args.learning_rate)
        return self.optimizer

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        out = model(**inputs)
        return (out.loss * self.weight, out) if return_outputs else out.loss * self.weight


model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-Coder-7B", dtype=torch.bfloat16)
args = TrainingArguments("o", per_device_train_batch_size=1, bf16=True, gradient_checkpointing=True)
trainer = Weighted(model=model, args=args, train_dataset=load_dataset("imdb", split="train"), weight=0.5)
trainer.train()
