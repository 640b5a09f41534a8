from dataclasses import dataclass

from simple_parsing import ArgumentParser, choice, field


@dataclass
class Train:
    bs: int = 8  # samples per device
    accumulate: int = field(default=2, alias="-g")
    bf16: bool = field(default=False, alias=["-m", "--mixed"])
    optimizer: str = choice("adamw", "sgd", default="adamw")


@dataclass
class Model:
    name: str = "gpt2"


parser = ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_arguments(Train, dest="train")
parser.add_arguments(Model, "model")
args = parser.parse_args()
RESULT = {"bs": args.train.bs, "accumulate": args.train.accumulate, "bf16": args.train.bf16, "optimizer": args.train.optimizer,
          "name": args.model.name, "seed": args.seed}  # fmt: skip
