from dataclasses import dataclass

from simple_parsing import ArgumentParser


@dataclass
class Options:
    bs: int = 4
    model: str = "gpt2"
    gc: bool = False


parser = ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_arguments(Options, dest="options")
args = parser.parse_args()
RESULT = dict(bs=args.options.bs, model=args.options.model, gc=args.options.gc, seed=args.seed)
