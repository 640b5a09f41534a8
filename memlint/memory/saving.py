"""What saving a checkpoint holds beyond what training does: it decides whether a run comes to its end."""

from __future__ import annotations

from collections.abc import Sequence

from memlint.gpus.gpu import Gpu
from memlint.memory.events import Peak
from memlint.memory.setup import Setup
from memlint.memory.tensor import Parameter

TURING = (7, 5)
"""From here on LLM.int8 multiplies in a layout of the card's (bitsandbytes 0.39 `autograd/_functions.py`, `supports_igemmlt`)."""


def cloned(setup: Setup, counted: Sequence[tuple[Parameter, int]], peaks: Sequence[Peak], gpu: Gpu | None) -> int:
    """Bytes while a state dict is made whose 8-bit weights are in rows again: beside those in the card's layout, which stay, and the clones
    that take their place in the module. 0 where nothing of that is so."""
    laid_out = gpu is None or gpu.compute_capability >= TURING
    if setup.quantization != "bnb_8bit" or not setup.stack.clones_saved or not laid_out:
        return 0
    packed = sum(count for parameter, count in counted if parameter.kind == "packed")
    return 2 * packed + max(peak.total for peak in peaks if peak.phase == "load")
