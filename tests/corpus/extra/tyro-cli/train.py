from dataclasses import dataclass, field
from typing import Literal

import torch
import tyro
from torch.utils.data import DataLoader
from transformers import AutoModelForMaskedLM

from data import masked_stream


@dataclass
class ModelCfg:
    name: str = "answerdotai/ModernBERT-large"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"


@dataclass
class Cfg:
    batch: int = 16
    accum: int = 2
    model: ModelCfg = field(default_factory=ModelCfg)
    compile: bool = False


def main(cfg: Cfg) -> None:
    model = AutoModelForMaskedLM.from_pretrained(cfg.model.name, dtype=getattr(torch, cfg.model.dtype)).cuda()
    if cfg.compile:
        model = torch.compile(model)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loader = DataLoader(masked_stream(), batch_size=cfg.batch)
    for step, batch in enumerate(loader):
        loss = model(**batch).loss / cfg.accum
        loss.backward()
        if (step + 1) % cfg.accum == 0:
            opt.step()
            opt.zero_grad()


if __name__ == "__main__":
    main(tyro.cli(Cfg))
