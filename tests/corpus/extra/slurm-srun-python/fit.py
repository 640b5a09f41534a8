from argparse import ArgumentParser

import lightning as L
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

from wiki import Wiki


class LM(L.LightningModule):
    def __init__(self, name, lr):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        self.model.gradient_checkpointing_enable()

    def training_step(self, batch, batch_idx):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main(args):
    model = LM("EleutherAI/gpt-j-6b", args.lr)
    loader = DataLoader(Wiki(), batch_size=args.batch, num_workers=4)
    trainer = L.Trainer(accelerator="gpu", devices=4, num_nodes=2, strategy="deepspeed_stage_2_offload",
                        precision=args.precision, accumulate_grad_batches=args.accum, max_epochs=1)
    trainer.fit(model, train_dataloaders=loader)


if __name__ == "__main__":
    p = ArgumentParser()
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--accum", type=int, default=16)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--precision", type=str, default="32-true")
    main(p.parse_args())
