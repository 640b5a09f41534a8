from dataclasses import dataclass, field

from omegaconf import OmegaConf


@dataclass
class Train:
    bs: int = 8
    gc: bool = False


@dataclass
class Config:
    train: Train = field(default_factory=Train)
    name: str = "gpt2"


cfg = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.from_cli())
RESULT = {"bs": cfg.train.bs, "gc": cfg.train.gc, "name": cfg.name}
