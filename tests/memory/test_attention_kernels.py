"""Which SDPA kernel runs on which card, and what the memory-efficient one needs in backward (torch 2.13 `cuda/sdp_utils.cpp`,
`attention_backward.cu`, `mem_eff_attention/kernel_backward.h`)."""

from __future__ import annotations

import pytest

from memlint.memory.attention import Shape, attend, efficient
from memlint.memory.autograd import backward, kept_for
from memlint.memory.machine import Machine, start
from memlint.memory.tensor import Tensor

HEADS, ROWS = 8, 1000


def inputs(m: Machine, dim: int, kv_heads: int = HEADS, itemsize: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values that need gradients."""
    sizes = (HEADS, kv_heads, kv_heads)
    q, k, v = (m.tape.leaf(m.new(ROWS * heads * dim, itemsize)) for heads in sizes)
    return q, k, v


def shape(dim: int, kv_heads: int = HEADS) -> Shape:
    return Shape(1, ROWS, ROWS, HEADS, kv_heads, dim, dim)


@pytest.mark.parametrize(
    ("dim", "rows", "columns"),
    [(64, 1024, 64), (80, 1024, 128), (128, 1024, 128), (256, 1024, 256)],
)
def test_the_efficient_kernel_adds_up_the_query_gradient_in_float32(dim: int, rows: int, columns: int) -> None:
    """Rows in tiles of 64 or 128, columns in tiles as wide as the tile of keys."""
    m = start(1, ROWS)
    out = efficient(m, *inputs(m, dim), shape(dim), m.new(ROWS * ROWS, 2))
    before = len(m.ledger.sizes)
    backward(m.tape, out, [m.new(out.numel, 2)])
    assert HEADS * rows * columns * 4 in m.ledger.sizes[before:]


@pytest.mark.parametrize(
    ("older", "float16", "kv_heads", "scores"),
    [
        (False, False, HEADS, False),  # flash
        (True, True, HEADS, False),  # memory-efficient takes float16 before Ampere,
        (True, False, HEADS, True),  # but not bfloat16,
        (True, True, 2, True),  # nor grouped heads
    ],
)
def test_cards_before_ampere_have_the_efficient_kernel_for_float16(
    older: bool, float16: bool, kv_heads: int, scores: bool
) -> None:
    m = start(1, ROWS)
    m.attention, m.no_flash, m.float16 = "sdpa", older, float16
    kept = kept_for(attend(m, *inputs(m, 64, kv_heads), shape(64, kv_heads)))
    assert any(storage.nbytes >= HEADS * ROWS * ROWS * 4 for storage in kept) == scores
