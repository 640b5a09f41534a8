from dataclasses import dataclass, field
from typing import Literal

import tyro

RESULT = {}


@dataclass
class Optim:
    bs: int = 8
    name: Literal["adamw", "sgd"] = "adamw"


def main(model: str = "gpt2", /, length: int = 512, *, optim: Optim = Optim(), bf16: bool = True, gc: bool = False) -> None:
    RESULT.update(model=model, length=length, bs=optim.bs, optim=optim.name, bf16=bf16, gc=gc)


if __name__ == "__main__":
    tyro.cli(main)
