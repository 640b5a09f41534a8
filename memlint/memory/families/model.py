"""A built model: stages of blocks between an embedding and a final normalisation, and the output head."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory.linear import Linear
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor

Block = Callable[[Machine, Tensor, "Tensor | None"], Tensor]
"""(machine, hidden states, context from the stage before) -> hidden states."""


class Stage:
    """A stack of blocks. `context` of a block is the previous stage's result (an encoder's output, image features)."""

    def __init__(
        self,
        embed: Callable[[Machine, Tensor | None], Tensor],
        blocks: list[Block],
        finish: Callable[[Machine, Tensor], Tensor],
        between: Mapping[int, Callable[[Machine, Tensor], Tensor]] | None = None,
    ) -> None:
        self.embed = embed
        self.blocks = blocks
        self.finish = finish
        self.between = between or {}
        """What happens to the states in front of a block, by its place in the model."""


class Model:
    """What the program runs: stages in order, then the head."""

    def __init__(
        self,
        stages: list[Stage],
        head: Callable[[Machine, Tensor], Tensor] | None,
        head_linear: Linear | None = None,
        hidden: int = 0,
        classes: int = 0,
        causal: bool = True,
        upcasts: bool = True,
        loss: Callable[[Machine, Tensor], Tensor] | None = None,
        reads_all: bool = False,
        names_embedding: bool = True,
    ) -> None:
        self.stages = stages
        self.head = head
        """Hidden states -> logits; None when the stages end in the loss themselves."""
        self.head_linear = head_linear
        self.hidden = hidden
        self.classes = classes
        """Width of the logits: the vocabulary or the number of labels."""
        self.causal = causal
        """Positions see only what comes before them: eager attention then has a mask even without padding."""
        self.upcasts = upcasts
        """The model's loss copies the logits to float32 (`ForCausalLMLoss`, `ForMaskedLMLoss`)."""
        self.loss = loss
        """The loss on the last states where it is none over classes (a diffusion model's)."""
        self.reads_all = reads_all
        """A classifier's head takes all positions, not the first one's states."""
        self.names_embedding = names_embedding
        """A local variable (`inputs_embeds`, `embedding_output`) holds the embedding's result until the stack has run (transformers)."""
        self.names_states = False
        """The output holds every block's input and the last one's result until the loss is there."""
        self.names_weights = False
        """The loop over the blocks has a variable for all that one returns, attention weights included, until the next one has run."""
        self.extras: dict[str, int] = {}
