from dataclasses import dataclass, field

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

RESULT = {}


@dataclass
class Model:
    name: str = "gpt2"
    dtype: str = "bfloat16"


@dataclass
class Config:
    model: Model = field(default_factory=Model)
    bs: int = 4
    output: str = MISSING
    work: str = "${oc.env:WORK,/tmp}/runs"
    length: int = "${oc.env:LENGTH,512}"


store = ConfigStore.instance()
store.store(name="base", node=Config)


@hydra.main(version_base=None, config_name="base")
def main(cfg):
    RESULT.update(name=cfg.model.name, dtype=cfg.model.dtype, bs=cfg.bs, output=cfg.output, length=cfg.length)


if __name__ == "__main__":
    main()
