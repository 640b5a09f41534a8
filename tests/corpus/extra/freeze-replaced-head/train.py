import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models

model = models.resnet50(weights="IMAGENET1K_V2")
for p in model.parameters():
    p.requires_grad = False
model.fc = nn.Linear(model.fc.in_features, 10)
model = model.to("cuda")
opt = torch.optim.SGD(model.fc.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(datasets.CIFAR10(".", download=True), batch_size=64, shuffle=True)
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        opt.step()
