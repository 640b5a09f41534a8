import argparse

base = argparse.ArgumentParser(add_help=False)
base.add_argument("--model", default="gpt2")
p = argparse.ArgumentParser(parents=[base])
p.add_argument("--per_device_batch", type=int, default=1)
p.add_argument("--ga", type=int)
known, rest = p.parse_known_args()
settings = vars(known)
settings["ga"] = settings["ga"] or 8
RESULT = dict(model=known.model, bs=known.per_device_batch, ga=settings["ga"], **{"total": known.per_device_batch * settings["ga"]})
