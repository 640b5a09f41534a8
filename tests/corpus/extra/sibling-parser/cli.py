import argparse


def add_model(p):
    g = p.add_argument_group("model")
    g.add_argument("--name-or-path", dest="model_path", default="tiiuae/falcon-7b")
    g.add_argument("--load-in-8bit", action="store_true", default=True)
    return p


def build():
    p = argparse.ArgumentParser(add_help=False)
    add_model(p)
    p.add_argument("-b", "--batch-size", type=int, default=4)
    p.add_argument("--grad_ckpt", action=argparse.BooleanOptionalAction, default=True)
    return p
