import timm
import torch
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

model = timm.create_model("vit_base_patch16_224", pretrained=True, num_classes=10)
model.set_grad_checkpointing()
model = model.cuda().to(memory_format=torch.channels_last)
ema = AveragedModel(model)
tf = transforms.Compose([transforms.Resize(224), transforms.ToTensor()])
loader = DataLoader(datasets.CIFAR10("d", transform=tf), batch_size=192, shuffle=True, num_workers=8)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
scaler = torch.amp.GradScaler("cuda")
crit = torch.nn.CrossEntropyLoss()
for epoch in range(10):
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = crit(model(x.cuda()), y.cuda())
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        ema.update_parameters(model)
