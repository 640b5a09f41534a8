"""A built model: stages of blocks between an embedding and a final normalisation, and the output head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from memlint.memory.linear import Linear
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor

Block = Callable[[Machine, Tensor, "Tensor | None"], Tensor]
"""(machine, hidden states, context from the stage before) -> hidden states."""


@dataclass(slots=True)
class Stage:
    """A stack of blocks. `context` of a block is the previous stage's result (an encoder's output, image features)."""

    embed: Callable[[Machine, Tensor | None], Tensor]
    blocks: list[Block]
    finish: Callable[[Machine, Tensor], Tensor]


@dataclass(slots=True)
class Model:
    """What the program runs: stages in order, then the head."""

    stages: list[Stage]
    head: Callable[[Machine, Tensor], Tensor] | None
    """Hidden states -> logits; None when the stages end in the loss themselves."""
    head_linear: Linear | None = None
    hidden: int = 0
    classes: int = 0
    """Width of the logits: the vocabulary or the number of labels."""
    causal: bool = True
    """Positions see only what comes before them: eager attention then has a mask even without padding."""
    upcasts: bool = True
    """The model's loss copies the logits to float32 (`ForCausalLMLoss`, `ForMaskedLMLoss`)."""
    loss: Callable[[Machine, Tensor], Tensor] | None = None
    """The loss on the last states where it is none over classes (a diffusion model's)."""
    extras: dict[str, int] = field(default_factory=dict)
