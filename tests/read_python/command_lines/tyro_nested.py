from dataclasses import dataclass, field

import tyro

RESULT = {}


@dataclass
class Optimizer:
    name: str = "adamw_torch"
    lr: float = 1e-4


@dataclass
class Args:
    model: str = "gpt2"
    batch_size: int = 8
    gc: bool = False
    optimizer: Optimizer = field(default_factory=Optimizer)


args = tyro.cli(Args)
RESULT = dict(model=args.model, bs=args.batch_size, gc=args.gc, optim=args.optimizer.name, lr=args.optimizer.lr)
