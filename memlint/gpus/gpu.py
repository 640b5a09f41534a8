"""What a GPU offers a training process. The numbers are in `data/gpus.json` (`tools/build_gpus.py`)."""

from __future__ import annotations

import json
import os
from functools import lru_cache

from memlint.paths import text_of
from memlint.typed import NamedTuple

DATA = os.path.join(os.path.dirname(__file__), "data", "gpus.json")


class Gpu(NamedTuple):
    """One kind of card. Bytes are per device; a dual-chip card counts as its devices."""

    name: str
    aliases: tuple[str, ...]
    memory_gb: float
    """The size it is sold with."""
    capacity_bytes: int
    """The total that torch reports on it with a current driver (`cudaMemGetInfo`), the lowest seen: plan with this."""
    compute_capability: tuple[int, int]
    """As `torch.cuda.get_device_capability` gives it, also on ROCm."""
    bf16: bool
    """Computes bfloat16 natively (Ampere and later). Older cards emulate it without tensor cores."""
    context_bytes: int
    """CUDA context and kernels of one process, inside `capacity_bytes` but outside the allocator. Nothing of NCCL."""
    context_low: int
    context_high: int
    driver_bytes: int
    """What nvidia-smi's total has beyond `capacity_bytes`. NVML's first interface counts it as used, nvidia-smi (since driver 510) not."""
    confidence: str
    """high, medium, or low (never seen: the capacity of a card like it)."""
    common: bool = False
    source: str = ""
    keys: tuple[str, ...] = ()
    """Its names as `find` squeezes them, kept because to squeeze all of them takes longer than to find one."""


@lru_cache(maxsize=1)
def all_gpus() -> tuple[Gpu, ...]:
    """Every known card, smallest capacity first."""
    cards = (
        Gpu(
            name=card["name"],
            aliases=tuple(card["aliases"]),
            memory_gb=card["memory_gb"],
            capacity_bytes=card["capacity_bytes"],
            compute_capability=(card["compute_capability"][0], card["compute_capability"][1]),
            bf16=card["bf16"],
            context_bytes=card["context"][1],
            context_low=card["context"][0],
            context_high=card["context"][2],
            driver_bytes=card["driver_bytes"],
            confidence=card["confidence"],
            common=card["common"],
            source=card["source"],
            keys=tuple(card["keys"]),
        )
        for card in json.loads(text_of(DATA))
    )
    return tuple(sorted(cards, key=lambda gpu: (gpu.capacity_bytes, gpu.name)))


def common_gpus() -> tuple[Gpu, ...]:
    """The dozen cards that an estimate is shown for when no card is named, smallest first."""
    return tuple(gpu for gpu in all_gpus() if gpu.common)
