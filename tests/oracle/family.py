"""What the oracle traces: a model type with a tiny config, and the shape of its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from memlint.memory.targets import DEFAULTS

from .regime import Regime

BATCH, SEQUENCE, VOCAB = 3, 160, 1000


@dataclass(frozen=True)
class Family:
    """A model type: its head, its tiny config without the depth, and the config keys that hold the depth (dotted when nested)."""

    model_type: str
    head: str = "causal_lm"
    config: Mapping[str, Any] = field(default_factory=dict)
    depth: tuple[str, ...] = ("num_hidden_layers",)
    use: str = ""
    """Tells two records of one model type apart: what it is used for."""
    frozen: str = ""
    """The module that is not trained (a tower in front of a language model)."""
    image_size: int = 0
    """Side of the images where the config does not fix it."""
    image_tokens: int = 0
    """Tokens of a sample that stand for its images, where a model picks them by value."""
    reads: int = 0
    """What the entries of an integer tensor are that a model turns into a list: tokens or pieces of an image."""
    makes_mask: bool = False
    """Where no mask is given, the class makes one of ones, which masks nothing."""
    layer_list: Callable[[int], Mapping[str, Any]] | None = None
    """Config keys that list something per layer, from the number of layers."""

    without: frozenset[str] = frozenset()
    """What the class (or peft for it) does not support: `sdpa`, `lora`, a set of its targets, `dropout` (of LoRA), `mask` (with `sdpa`: it
    has no attention), `checkpointing`, `float32` weights or `bfloat16` without autocast."""

    @property
    def name(self) -> str:
        """Its name in the record."""
        return f"{self.model_type}-{self.use}" if self.use else self.model_type

    def regimes(self, regimes: Iterable[Regime]) -> list[Regime]:
        """Those that the class supports; a class without SDPA takes eager attention instead."""
        if "sdpa" in self.without:
            regimes = dict.fromkeys(replace(regime, attention="eager") for regime in regimes)
        return [
            regime
            for regime in regimes
            if not (
                (regime.adapter != "none" and not self.adapts(regime.targets))
                or ("dropout" in self.without and regime.dropout)
                or ("mask" in self.without and regime.mask)
                or ("float32" in self.without and regime.weights == "float32")
                or ("bfloat16" in self.without and regime.weights == "bfloat16" and not regime.autocast)
                or ("checkpointing" in self.without and regime.checkpointing != "off")
                or regime.checkpointing in self.without
            )
        ]

    def adapts(self, targets: str) -> bool:
        """Whether LoRA has something to be put on: the first and last module are those of language models."""
        if "lora" in self.without or targets in self.without:
            return False
        if targets == "attention":
            return not {"mask", "sdpa"} <= self.without
        if targets == "default":
            return self.model_type in DEFAULTS
        return targets not in ("ends", "saved") or self.head in ("causal_lm", "masked_lm", "image_text_to_text")

    def at_depth(self, layers: int) -> dict[str, Any]:
        """The config with that many layers."""
        return at_depth({**self.config, **(self.layer_list(layers) if self.layer_list else {})}, self.depth, layers)


def at_depth(config: Mapping[str, Any], keys: Iterable[str], layers: int) -> dict[str, Any]:
    """The config with `layers` under each of the dotted keys."""
    deep = dict(config)
    for key in keys:
        outer, _, inner = key.rpartition(".")
        if outer:
            deep[outer] = {**deep[outer], inner: layers}
        else:
            deep[inner] = layers
    return deep
