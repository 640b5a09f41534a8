"""Multi-token prediction of Megatron-Core: further layers behind the decoder, each with a loss of its own.

Read in Megatron-LM 0.14 (`core/transformer/multi_token_prediction.py` `MultiTokenPredictionLayer`, `core/models/gpt/gpt_model.py`
`_postprocess`): the states before and the embeddings of the next tokens, both normalised, are projected from twice the width, then
comes a layer like the others, then a norm; the head is the model's.
"""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families.megatron_parts import Layer, linear_of, norm
from memlint.memory.families.model import Block
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor


def predictor(b: Builder, hidden: int, tokens: int, layer: Block) -> Layer:
    """The states that the next loss is taken of. Recomputed as a whole where layers are: it then keeps its input only."""
    split = b.setup.sharding.tensor
    embedded, states, final = (b.norm(name, hidden) for name in ("enorm", "hnorm", "final_layernorm"))
    project = linear_of(b, "eh_proj", 2 * hidden, hidden // split)

    def predict(m: Machine, x: Tensor) -> Tensor:
        ahead = m.new(x.numel, x.itemsize)  # embeddings of the tokens rolled by one
        both = ops.concat(m, (norm(m, ahead, embedded, hidden), norm(m, x, states, hidden)))
        del ahead
        joined = project(m, ops.resized(m, both, m.tokens * 2 * hidden))
        del both
        x = layer(m, ops.resized(m, joined, tokens * hidden), None)
        del joined
        return norm(m, x, final, hidden)

    def recomputed(m: Machine, x: Tensor) -> Tensor:
        enabled, m.tape.enabled = m.tape.enabled, False
        out = predict(m, x)
        m.tape.enabled = enabled
        numel, itemsize = x.numel, x.itemsize
        return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),), (x.storage,))

    return recomputed if b.setup.checkpointing == "full" else predict


def with_predictions(loss: Layer, predictors: list[Layer]) -> Layer:
    """The model's loss and those of its predictions, which come first, added up."""

    def total(m: Machine, x: Tensor) -> Tensor:
        ahead, losses = x, []
        for predict in predictors:
            ahead = predict(m, ahead)
            losses.append(loss(m, ahead))
        del ahead
        value = loss(m, x)
        del x
        for other in losses:
            value = ops.add(m, value, other)
        return value

    return total
