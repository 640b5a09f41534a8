"""Keys and values that a model returns from training, too, because its configuration says `use_cache`: they live until its outputs go.

Mostly attention keeps the same tensors; what is more is what it got as a copy (heads repeated, another dtype), and accelerate's float32
copies where they are returned as tuples (accelerate 0.26 `utils/operations.py`, `convert_to_fp32`, which passes over cache objects).
"""

from __future__ import annotations

from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Storage, Tensor


def keep(m: Machine, k: Tensor, v: Tensor) -> None:
    """A layer returns its keys and values."""
    layer = m.ledger.segments[-1][2]
    m.cached += [(layer, t.storage, t.numel) for t in (k, v)]


def widen(m: Machine) -> None:
    """The outputs are copied in float32, while what they are copied from is still there."""
    component, m.ledger.component = m.ledger.component, "activations"
    phase = m.ledger.segments[-1][1].removeprefix(m.ledger.prefix)
    for layer, _, numel in [*m.cached]:
        m.ledger.enter(phase, layer)
        m.cached.append((layer, Storage(m.ledger, numel * FP32), numel))
    m.ledger.enter(phase)
    m.ledger.component = component


def drop(m: Machine) -> None:
    """The outputs are no longer needed."""
    gone, m.cached = sorted(m.cached, key=lambda entry: entry[0]), []
    while gone:
        m.ledger.enter("release", gone[0][0])
        gone.pop(0)
    m.ledger.enter("release")
