# config class with inheritance & class attrs, pydantic-settings
from pydantic import BaseModel
from pydantic_settings import BaseSettings
import torch, yaml
from pathlib import Path
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments
class TrainCfg(BaseModel):
    batch_size: int = 4
    grad_accum: int = 1
    precision: str = "bf16"
class Cfg(BaseModel):
    model: str
    train: TrainCfg = TrainCfg()
    @classmethod
    def from_yaml(cls, path): return cls(**yaml.safe_load(Path(path).read_text()))
cfg = Cfg.from_yaml(Path(__file__).parent / "settings.yaml")
conf = AutoConfig.from_pretrained(cfg.model); conf.use_cache = False; conf.attention_dropout = 0.1
model = AutoModelForCausalLM.from_pretrained(cfg.model, config=conf, torch_dtype=torch.bfloat16 if cfg.train.precision == "bf16" else torch.float32)
Trainer(model, TrainingArguments("o", per_device_train_batch_size=cfg.train.batch_size, gradient_accumulation_steps=cfg.train.grad_accum, bf16=cfg.train.precision == "bf16"), train_dataset=[]).train()
