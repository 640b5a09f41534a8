# torchvision/timm loops
import timm, torch
from torch import optim, nn
from torch.cuda.amp import autocast, GradScaler
from torch.utils.data import DataLoader
from timm.data import create_loader
model = timm.create_model("vit_base_patch16_224.augreg_in21k", pretrained=True, num_classes=100, drop_rate=0.1).cuda()
model.set_grad_checkpointing()
opt = timm.optim.create_optimizer_v2(model, opt="adamw", lr=5e-4, weight_decay=0.05)
scaler = GradScaler()
train_loader = DataLoader(ds, 128, True, num_workers=8)
for e in range(10):
    for i, (x, y) in enumerate(train_loader):
        with autocast():
            out = model(x.cuda(non_blocking=True)); loss = nn.CrossEntropyLoss()(out, y.cuda()) / 2
        scaler.scale(loss).backward()
        if (i + 1) % 2 == 0:
            scaler.step(opt); scaler.update(); opt.zero_grad()
