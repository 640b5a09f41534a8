import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from torch.utils.data import DataLoader

model = UNet2DModel(sample_size=128, in_channels=3, out_channels=3, layers_per_block=2, block_out_channels=(128, 256, 512))
scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = DataLoader(images, batch_size=16, shuffle=True)
accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(50):
    for batch in loader:
        noise = torch.randn_like(batch["images"])
        steps = torch.randint(0, 1000, (16,), device=noise.device)
        with accelerator.accumulate(model):
            predicted = model(scheduler.add_noise(batch["images"], noise, steps), steps, return_dict=False)[0]
            accelerator.backward(F.mse_loss(predicted, noise))
            optimizer.step()
            optimizer.zero_grad()
