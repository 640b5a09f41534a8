import argparse

RESULT = {}


def common(parser):
    group = parser.add_argument_group("training")
    group.add_argument("--bs", type=int, default=2)
    return parser


def build():
    p = argparse.ArgumentParser()
    p.add_argument("--verbose", action="store_true")
    sub = p.add_subparsers(dest="command", required=True)
    lm = common(sub.add_parser("lm"))
    lm.add_argument("--length", type=int, default=512)
    lm.set_defaults(run=train_lm)
    cls = common(sub.add_parser("cls"))
    cls.add_argument("--labels", type=int, required=True)
    cls.set_defaults(run=train_cls, bs=32)
    return p


def train_lm(args):
    RESULT.update(kind="lm", bs=args.bs, length=args.length)


def train_cls(args):
    RESULT.update(kind="cls", bs=args.bs, labels=args.labels)


args = build().parse_args()
RESULT["verbose"] = args.verbose
RESULT["command"] = args.command
args.run(args)
