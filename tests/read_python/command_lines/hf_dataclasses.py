from dataclasses import dataclass, field
from typing import List, Literal, Optional

from transformers import HfArgumentParser


@dataclass
class Model:
    name: str = field(default="gpt2", metadata={"help": "model"})
    dtype: Optional[str] = None
    attention: Literal["sdpa", "eager"] = "sdpa"


@dataclass
class Base:
    bs: int = 8
    targets: List[str] = field(default_factory=lambda: ["q_proj", "v_proj"])


@dataclass
class Train(Base):
    bs: int = 16
    bf16: bool = False
    packing: bool = True
    dropout: float = 0.1
    accum: Optional[int] = field(default=None)

    def __post_init__(self):
        if self.accum is None:
            self.accum = 64 // self.bs


model, train = HfArgumentParser((Model, Train)).parse_args_into_dataclasses()
RESULT = dict(name=model.name, dtype=model.dtype, attention=model.attention, bs=train.bs, targets=train.targets, bf16=train.bf16)
RESULT.update(packing=train.packing, dropout=train.dropout, accum=train.accum)
