import argparse
from pathlib import Path


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be positive")
    return value


def str2bool(v):
    if isinstance(v, bool):
        return v
    if v.lower() in ("yes", "true", "t", "y", "1"):
        return True
    elif v.lower() in ("no", "false", "f", "n", "0"):
        return False
    else:
        raise argparse.ArgumentTypeError("Boolean value expected.")


parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, nargs="?", const=16, default=8)
parser.add_argument("--ga", type=eval, default="2*2")
parser.add_argument("--packed", type=eval, default=True)
parser.add_argument("--gc", type=str2bool, nargs="?", const=True, default=False)
parser.add_argument("--length", type=positive, default=512)
parser.add_argument("--out", type=Path, default=Path("runs"))
parser.add_argument("-v", "--verbose", action="count", default=0)
parser.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.95))
parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
parser.add_argument("--sizes", type=lambda s: [int(part) for part in s.split(",")], default=[1])
parser.add_argument("--no-cuda", dest="cuda", action="store_false")
args, unknown = parser.parse_known_args()
for item in args.set:
    key, _, value = item.partition("=")
    setattr(args, key, int(value))
RESULT = {"bs": args.bs, "ga": args.ga, "packed": args.packed, "gc": args.gc, "length": args.length, "out": str(args.out),
          "verbose": args.verbose, "betas": list(args.betas), "sizes": args.sizes, "cuda": args.cuda}  # fmt: skip
