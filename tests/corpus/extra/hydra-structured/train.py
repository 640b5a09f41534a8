# Hydra structured config
from dataclasses import dataclass, field
import hydra, torch
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf, MISSING, DictConfig
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
@dataclass
class ModelCfg:
    name: str = MISSING
    dtype: str = "bfloat16"
@dataclass
class Cfg:
    model: ModelCfg = field(default_factory=ModelCfg)
    bs: int = 4
    ga: int = 2
    gc: bool = True
cs = ConfigStore.instance()
cs.store(name="base_config", node=Cfg)
@hydra.main(version_base=None, config_name="base_config")
def main(cfg: Cfg) -> None:
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name, torch_dtype=getattr(torch, cfg.model.dtype))
    args = TrainingArguments("o", per_device_train_batch_size=cfg.bs, gradient_accumulation_steps=cfg.ga, gradient_checkpointing=cfg.gc, bf16=True)
    Trainer(model, args, train_dataset=[]).train()
if __name__ == "__main__": main()
