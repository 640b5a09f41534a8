import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

from books import Books

accum = 8


def main():
    fabric = Fabric(accelerator="cuda", devices=2, strategy="ddp", precision="16-mixed")
    fabric.launch()
    model = AutoModelForCausalLM.from_pretrained("EleutherAI/gpt-neo-1.3B", dtype=torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(DataLoader(Books(), batch_size=3))
    for i, batch in enumerate(loader):
        busy = (i + 1) % accum != 0
        with fabric.no_backward_sync(model, enabled=busy):
            loss = model(input_ids=batch, labels=batch).loss
            fabric.backward(loss / accum)
        if not busy:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
