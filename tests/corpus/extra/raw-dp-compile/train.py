import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from transformers import T5ForConditionalGeneration

from dataset import Pairs


class Engine:
    def __init__(self, **kw):
        self.__dict__.update(kw)
        net = T5ForConditionalGeneration.from_pretrained(self.name, dtype=torch.float32)
        net = net.to(dtype=torch.bfloat16).cuda()
        self.net = torch.compile(nn.DataParallel(net))
        self.opt = optim.Adagrad(self.net.parameters(), lr=1e-2)

    def step(self, batch):
        self.opt.zero_grad()
        out = self.net(**batch)
        out["loss"].mean().backward()
        self.opt.step()

    def run(self, data):
        for epoch in range(self.epochs):
            for batch in data:
                self.step(batch)


Engine(name="google-t5/t5-base", epochs=3).run(DataLoader(Pairs(), batch_size=48, drop_last=True))
