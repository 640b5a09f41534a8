import argparse

RESULT = {}


def finetune(args):
    RESULT.update(what="finetune", **{k: v for k, v in vars(args).items() if k != "func"})


def pretrain(args):
    RESULT.update(what="pretrain", **{k: v for k, v in vars(args).items() if k != "func"})


def build():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("pretrain", aliases=["pt"])
    second = commands.add_parser("finetune", aliases=["ft"])
    for sub in (first, second):
        group = sub.add_argument_group("optimization")
        group.add_argument("-b", "--batch-size", dest="bs", type=int, default=8)
        either = sub.add_mutually_exclusive_group()
        either.add_argument("--bf16", dest="precision", action="store_const", const="bf16", default="fp32")
        either.add_argument("--fp16", dest="precision", action="store_const", const="fp16")
        sub.add_argument("--gc", action=argparse.BooleanOptionalAction, default=True)
    second.set_defaults(func=finetune, lr=1e-5)
    first.set_defaults(func=pretrain)
    return parser


if __name__ == "__main__":
    args = build().parse_args()
    args.func(args)
