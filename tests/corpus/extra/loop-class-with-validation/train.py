
import torch
from torch.utils.data import DataLoader
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, get_scheduler
class Trainer:
    def __init__(self, model, train_ds, val_ds, bs=4, accum=8):
        self.acc = Accelerator(gradient_accumulation_steps=accum, mixed_precision="fp16")
        self.train_dl = DataLoader(train_ds, batch_size=bs, shuffle=True)
        self.val_dl = DataLoader(val_ds, batch_size=bs * 2)
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.model, self.opt, self.train_dl, self.val_dl = self.acc.prepare(model, self.opt, self.train_dl, self.val_dl)
    def fit(self, epochs):
        for ep in range(epochs):
            self.train_epoch()
            self.validate()
    def train_epoch(self):
        self.model.train()
        for batch in self.train_dl:
            with self.acc.accumulate(self.model):
                loss = self.model(**batch).loss
                self.acc.backward(loss)
                self.opt.step()
                self.opt.zero_grad()
    @torch.no_grad()
    def validate(self):
        self.model.eval()
        for batch in self.val_dl:
            self.model(**batch)
t = Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), DS("a"), DS("b"))
t.fit(3)
