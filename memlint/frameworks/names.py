"""Names of library classes and functions, independent of the module path they are imported from."""

from __future__ import annotations

from memlint.read.pyeval.values import Instance

ALIASES = {"pytorch_lightning": "lightning", "lightning_fabric": "lightning", "unsloth_zoo": "unsloth", "bnb": "bitsandbytes"}


def canonical(name: str) -> tuple[str, str]:
    """(root package, rest from the first CamelCase part or the last part on).

    `transformers.models.gpt2.GPT2Config.from_pretrained` -> (`transformers`, `GPT2Config.from_pretrained`);
    `torch.optim.AdamW` -> (`torch`, `AdamW`); `torch.utils.checkpoint.checkpoint` -> (`torch`, `checkpoint`).
    """
    root, *parts = name.split(".")
    root = ALIASES.get(root, root)
    for index, part in enumerate(parts):
        if part[:1].isupper():
            return root, ".".join(parts[index:])
    return root, parts[-1] if parts else ""


def class_name(instance: Instance) -> str:
    """The library class's name of an object: `TrainingArguments` for one of a subclass written in the script."""
    return canonical(instance.library)[1].partition(".")[0]


def root_of(instance: Instance) -> str:
    """The package of an object's library class."""
    return canonical(instance.library)[0]


def is_lightning_trainer(root: str, name: str) -> bool:
    """Whether a class is Lightning's Trainer."""
    return root == "lightning" and name == "Trainer"
