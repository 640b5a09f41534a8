import torch
import pytorch_lightning as pl
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification
from imdb_data import make

BATCH_SIZE = 24


class Classifier(pl.LightningModule):
    def __init__(self, model_name: str = "distilbert-base-uncased", lr: float = 2e-5):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForSequenceClassification.from_pretrained(self.hparams.model_name, num_labels=2, dtype=torch.float32)

    def forward(self, **x):
        return self.model(**x)

    def training_step(self, batch, _):
        out = self(**batch)
        self.log("train_loss", out.loss)
        return out.loss

    def validation_step(self, batch, _):
        self.log("val_loss", self(**batch).loss)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


def cli_main():
    pl.seed_everything(0)
    train, val = make("train"), make("test")
    trainer = pl.Trainer(max_epochs=3, accelerator="gpu", devices=[0, 1], strategy="ddp_find_unused_parameters_false",
                         precision=16, accumulate_grad_batches=2, gradient_clip_val=1.0)
    trainer.fit(Classifier(), DataLoader(train, batch_size=BATCH_SIZE, shuffle=True), DataLoader(val, batch_size=BATCH_SIZE * 2))


if __name__ == "__main__":
    cli_main()
