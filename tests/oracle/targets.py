"""What LoRA is put on: the names that people write for a set of modules, read off the model."""

from __future__ import annotations

from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

ATTENTION = ("attn", "attention")

EXPERTS = {
    "mixtral": ["w1", "w2", "w3"],
    "minimax_m2": ["w1", "w2", "w3"],
    "qwen3_moe": ["gate_proj", "up_proj", "down_proj"],
    "olmoe": ["gate_proj", "up_proj", "down_proj"],
    "flex_olmo": ["gate_proj", "up_proj", "down_proj"],
}
"""What experts were called while they were linears: PEFT takes these names for the stacked parameters."""


def lora_arguments(model: Any, model_type: str, targets: str) -> dict[str, Any]:
    """`target_modules` and `modules_to_save` of the `LoraConfig` for one of `regime.TARGETS`."""
    if targets == "all-linear":
        return {"target_modules": targets}
    if targets == "default":
        return {}
    if targets in ("attention", "mlp"):
        return {"target_modules": modules(model, model_type, targets)}
    attention, ends = (modules(model, model_type, part) for part in ("attention", "ends"))
    return {"target_modules": attention, "modules_to_save": ends} if targets == "saved" else {"target_modules": attention + ends}


def modules(model: Any, model_type: str, targets: str) -> list[str]:
    """The names of the linears of attention, of the other linears of the layers (`mlp`), or of embedding and head (`ends`)."""
    if targets == "ends":
        return [_leaf(model, module) for module in (model.get_input_embeddings(), model.get_output_embeddings())]
    attention, rest, others = _modules(model)
    if targets == "attention":
        return _names(attention, rest + others)
    return EXPERTS.get(model_type) or _names(rest, attention + others)


def _leaf(model: Any, module: torch.nn.Module) -> str:
    return next(path for path, found in model.named_modules() if found is module).rsplit(".", 1)[-1]


Paths = list[list[str]]


def _modules(model: Any) -> tuple[Paths, Paths, Paths]:
    """Paths of the linears of all layers, within their layer: those of the attention, and the others; and of convolutions."""
    attention: Paths = []
    rest: Paths = []
    convolutions: Paths = []
    for path, module in model.named_modules():
        parts = path.split(".")
        within = next((parts[i + 1 :] for i, part in enumerate(parts) if part.isdigit()), [])
        if within and isinstance(module, (torch.nn.Linear, Conv1D)):
            of_attention = any(word in part.lower() for part in within for word in ATTENTION)
            (attention if of_attention else rest).append(within)
        elif isinstance(module, (torch.nn.Conv2d, torch.nn.Conv3d)):
            convolutions.append(parts)
    return attention, rest, convolutions


def _names(wanted: Paths, others: Paths) -> list[str]:
    """The shortest ends of the wanted paths that no other path has, as far as there are such."""
    ends = {tuple(path[-n:]) for path in others for n in range(1, len(path) + 1)}
    names: dict[str, None] = {}
    for path in wanted:
        length = next((n for n in range(1, len(path) + 1) if tuple(path[-n:]) not in ends), len(path))
        names[".".join(path[-length:])] = None
    return list(names)
