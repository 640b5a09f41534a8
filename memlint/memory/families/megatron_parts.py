"""What Megatron-Core's layers are made of: Transformer Engine's norms and linears, with adapters beside them.

Read in Transformer Engine 2.11 (`pytorch/module/layernorm_linear.py`, `linear.py`): a fused norm-linear keeps the norm's input and output,
a linear keeps its input, weight gradients go straight into the float32 gradient buffer, SwiGLU keeps the up-projection's output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.machine import Machine
from memlint.memory.setup import Setup
from memlint.memory.tensor import FP32, Parameter, Storage, Tensor
from memlint.models.architecture import Architecture

Layer = Callable[[Machine, Tensor], Tensor]


def norm(m: Machine, x: Tensor, weight: Parameter, width: int) -> Tensor:
    """The norm half of a fused norm-linear: keeps its input and one float32 per row."""
    out = m.new(x.numel, x.itemsize)
    rsigma = Storage(m.ledger, x.numel // width * FP32)
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x, weight), lambda g: (m.new(numel, itemsize), None), (x.storage, rsigma))


def linear(m: Machine, x: Tensor, weight: Parameter, fin: int, fout: int) -> Tensor:
    """A linear whose weight gradient is accumulated in place in the gradient buffer."""
    out = m.new(x.numel // fin * fout, x.itemsize)
    numel, itemsize = x.numel, x.itemsize
    saved = x.storage if weight.node is not None else None
    return m.tape.record(out, (x, weight), lambda g: (m.new(numel, itemsize), None), (saved,))


def swiglu(m: Machine, both: Tensor) -> Tensor:
    out = m.new(both.numel // 2, both.itemsize)
    numel, itemsize = both.numel, both.itemsize
    return m.tape.record(out, (both,), lambda g: (m.new(numel, itemsize),), (both.storage,))


def activated(m: Machine, x: Tensor) -> Tensor:
    """An activation without gates: its input is kept."""
    out = m.new(x.numel, x.itemsize)
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),), (x.storage,))


def number(a: Architecture, *names: str) -> int:
    """The first of these configuration entries that is set (Hugging Face's name, then Megatron's); 0 if none is."""
    inner = a.config.get("megatron_config")
    for name in names:
        value = a.config.get(name) or (inner.get(name) if isinstance(inner, Mapping) else None)
        if value:
            return int(value)
    return 0


def linear_of(b: Builder, name: str, fin: int, fout: int) -> Layer:
    """A linear, with a low-rank pair beside it where an adapter targets it (ms-swift: `all-linear`)."""
    weight = b.parameter(name, "linear", (fout, fin))
    if not b.setup.adapter or not b.targets(name.rsplit(".", 1)[-1], False):
        return lambda m, x: linear(m, x, weight, fin, fout)
    setup, pair = b.setup, low_rank(b, name, fin, fout)
    return lambda m, x: adapted(m, setup, linear(m, x, weight, fin, fout), x, pair)


def low_rank(b: Builder, name: str, fin: int, fout: int, copies: int = 1) -> tuple[Parameter, Parameter]:
    """Both matrices of a low-rank pair, `copies` of each for so many experts, in the dtype of the model: `Float16Module` casts them
    (Megatron-LM 0.13 `training.py`, `get_model`, after ms-swift a9ffe72bb4 `tuners/lora.py` has made them in float32)."""
    rank, size = copies * b.setup.lora_rank, b.setup.weight_itemsize
    down = b.make(f"{name}.lora_A", "adapter", (rank, fin), size, True, "adapters")
    return down, b.make(f"{name}.lora_B", "adapter", (rank, fout), size, True, "adapters")


def adapted(m: Machine, setup: Setup, out: Tensor, x: Tensor, pair: tuple[Parameter, ...]) -> Tensor:
    """Add what the pair makes of `x`; of several experts' each row meets one (ms-swift a9ffe72bb4 `LoraParallelLinear.forward`)."""
    if not pair:
        return out
    down, up = pair
    low = linear(m, ops.dropout(m, x, setup.adapter_dropout), down, down.shape[1], setup.lora_rank)
    return ops.add(m, out, ops.scale(m, linear(m, low, up, setup.lora_rank, up.shape[1])))
