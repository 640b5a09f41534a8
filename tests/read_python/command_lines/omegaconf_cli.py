from omegaconf import OmegaConf

base = OmegaConf.create({"model": "gpt2", "train": {"bs": 4, "ga": 2}})
file = OmegaConf.load("conf/train/small.yaml")
conf = OmegaConf.merge(base, {"train": file}, OmegaConf.from_cli())
RESULT = dict(model=conf.model, bs=conf.train.bs, ga=conf.train.ga, length=conf.train.length)
