"""What a custom operation keeps as an attribute of its context instead of by `save_for_backward`, as bitsandbytes' int8 product keeps its
input: checkpointing does not see it unless its forward pass has no graph, and it lives as long as the loss does."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

WEIGHT = torch.ones(8, 8)


class Product(torch.autograd.Function):
    """`x @ WEIGHT` with its input as an attribute."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.tensors = (x,)
        return x @ WEIGHT

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] @ WEIGHT.t()


@pytest.mark.parametrize(("reentrant", "kept"), [(False, True), (True, False)])
def test_an_attribute_outlives_non_reentrant_checkpointing_only(reentrant: bool, kept: bool) -> None:
    inputs: list[weakref.ref[torch.Tensor]] = []

    def block(x: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(x) * 2
        inputs.append(weakref.ref(inner))
        return Product.apply(inner)  # type: ignore[no-any-return, no-untyped-call]

    y = torch.ones(4, 8, requires_grad=True)
    for _ in range(3):
        y = checkpoint(block, y, use_reentrant=reentrant)
    gc.collect()
    assert [ref() is not None for ref in inputs] == [kept] * 3
    loss = y.sum()
    loss.backward()
    gc.collect()
    assert [ref() is not None for ref in inputs[:3]] == [kept] * 3
    del loss, y
    gc.collect()
    assert not any(ref() is not None for ref in inputs)
