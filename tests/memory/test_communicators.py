"""NCCL's buffers beside torch's allocator, against what people measured."""

from __future__ import annotations

import pytest

from memlint.gpus import find
from memlint.memory.beside import communicators
from memlint.memory.sharding import Sharding


def test_a_communicator_of_four_cards() -> None:
    """NVIDIA/nccl#964: 688 MiB each on four A100 with NVLink, 544 MiB on two."""
    low, expected, high = communicators(Sharding(strategy="ddp", world=4))
    assert expected == 688 << 20
    assert low < 544 << 20 < expected < high
    assert communicators(Sharding(strategy="ddp", world=2))[1] == 544 << 20


def test_an_all_to_all_connects_every_pair() -> None:
    """NVIDIA/nccl#1685: the first all-to-all of eight H100 takes what the process has beside torch from 1.06 to 4.34 GB."""
    with_experts = communicators(Sharding(strategy="fsdp2", world=8, ranks=8, expert=8))
    without = communicators(Sharding(strategy="fsdp2", world=8, ranks=8))
    assert with_experts[1] - without[1] == pytest.approx(4.34e9 - 1.06e9, rel=0.15)


def test_megatron_has_many_groups() -> None:
    """NVIDIA/nccl#864: about 6 GB where there are several communicators, of which the first has 1.6 GB with its context."""
    _, expected, high = communicators(Sharding(strategy="megatron", world=8, tensor=2, pipeline=2, ranks=2))
    assert 3e9 < expected < 6e9 < high


def test_few_channels_without_nvlink() -> None:
    card = find("RTX 4090")
    assert card is not None
    assert communicators(Sharding(strategy="ddp", world=4), card)[1] < 100 << 20
    assert communicators(Sharding(strategy="ddp", world=1), card) == (0, 0, 0)
