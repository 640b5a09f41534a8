"""Modules that are known without being read, and what is not known of all others."""

from __future__ import annotations

from memlint.read.pyeval.values import Symbol

LIBRARIES = frozenset(
    """torch transformers trl peft accelerate datasets deepspeed bitsandbytes numpy os sys re json math time random logging
    argparse typing dataclasses pathlib functools itertools collections copy yaml tqdm wandb lightning pytorch_lightning
    unsloth tokenizers evaluate fire click typer tyro hydra omegaconf absl diffusers timm torchvision
    sentence_transformers torchao safetensors huggingface_hub pandas sklearn scipy matplotlib PIL enum abc subprocess
    shutil warnings contextlib gc glob pickle string types inspect importlib multiprocessing threading datetime uuid
    hashlib socket tempfile io sagemaker boto3 configparser ml_collections ray""".split()  # noqa: SIM905
)
"""Top-level names never looked for in the project: the standard library and the frameworks."""


def unread(symbol: Symbol) -> str:
    """Why a name of a module that is not here has no known value; empty for modules, classes and the known libraries."""
    root, _, rest = symbol.name.partition(".")
    last = rest.rpartition(".")[2]
    is_class = last[:1].isupper() and any(c.islower() for c in last)
    if not rest or is_class or root in LIBRARIES or root in {"builtins", "memlint"}:
        return ""
    return f"`{symbol.name}` is of a module that is not here"
