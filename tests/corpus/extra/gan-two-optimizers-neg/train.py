import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x):
        return self.body(x)


device = "cuda" if torch.cuda.is_available() else "cpu"
net = Net().to(device)
opt = torch.optim.Adam(net.parameters(), 1e-3)
data = DataLoader(TensorDataset(torch.randn(1000, 64), torch.randint(0, 10, (1000,))), batch_size=100)
for epoch in range(3):
    for x, y in data:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        loss.backward()
        opt.step()
