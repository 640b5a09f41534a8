import hydra
from omegaconf import DictConfig

RESULT = {}


@hydra.main(version_base=None, config_path="conf", config_name="main")
def main(cfg: DictConfig) -> None:
    RESULT.update(model=cfg.model, gc=cfg.gc, bs=cfg.train.bs, length=cfg["train"]["length"], effective=cfg.effective)
    RESULT.update(extra=cfg.get("extra", 0))


if __name__ == "__main__":
    main()
