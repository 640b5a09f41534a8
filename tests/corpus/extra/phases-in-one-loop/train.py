
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForMaskedLM
model = AutoModelForMaskedLM.from_pretrained("roberta-base").cuda()
loaders = {"train": DataLoader(a, batch_size=16), "val": DataLoader(b, batch_size=64)}
opt = torch.optim.Adadelta(model.parameters())
for epoch in range(3):
    for phase in ["train", "val"]:
        model.train(phase == "train")
        for batch in loaders[phase]:
            with torch.set_grad_enabled(phase == "train"):
                loss = model(**batch).loss
                if phase == "train":
                    loss.backward()
                    opt.step()
                    opt.zero_grad()
