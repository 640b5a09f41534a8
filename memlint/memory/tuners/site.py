"""Where a tuner works: one linear layer of the model, with the configuration and the means to make parameters."""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.linear import Linear, base
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.tensor import FP32, Parameter, Storage, Tensor
from memlint.typed import Any, NamedTuple

BNB = ("bnb_4bit", "bnb_8bit")
"""bitsandbytes' packed weights, which most tuners know."""

Forward = Callable[[Machine, Tensor], Tensor]
"""The adapted layer's forward pass."""


class Site(NamedTuple):
    """A linear layer that is being adapted; `copies`: it stands for that many equal ones."""

    builder: Builder
    layer: Linear
    copies: int = 1

    @property
    def fin(self) -> int:
        """Input features."""
        return self.layer.fin

    @property
    def fout(self) -> int:
        """Output features."""
        return self.layer.fout

    @property
    def elements(self) -> int:
        """Elements of the layer's weight."""
        return self.layer.fin * self.layer.fout * self.copies

    def option(self, name: str, default: Any) -> Any:
        """A field of the PEFT configuration; `default` is that of its class."""
        value = self.builder.setup.adapter_options.get(name)
        return default if value is None else value

    def rank(self, default: int) -> int:
        """`r`, as the run or the configuration states it."""
        return int(self.builder.setup.adapter_rank or self.option("r", default))

    def dropout(self, name: str) -> float:
        """A dropout rate: the canonical fact, or the method's own field."""
        return float(self.option(name, self.builder.setup.adapter_dropout))

    def parameter(self, name: str, *shape: int, trained: bool = True, itemsize: int = 0) -> Parameter:
        """An adapter weight of this layer, one for each of its copies."""
        itemsize = itemsize or self.builder.setup.adapter_itemsize
        shape = (shape[0] * self.copies, *shape[1:])
        return self.builder.make(f"{self.layer.name}.{name}", "adapter", shape, itemsize, trained, "adapters")

    def buffer(self, numel: int, itemsize: int = FP32) -> Tensor:
        """A tensor of the adapter that is no parameter."""
        storage = Storage(self.builder.machine.ledger, numel * itemsize, "adapters")
        self.builder.extra.append(storage)
        return Tensor(storage, numel, itemsize)

    def shared(self, key: object, make: Callable[[], Any]) -> Any:
        """What several layers share, made by the first one that asks for it."""
        if key not in self.builder.shared:
            self.builder.shared[key] = make()
        return self.builder.shared[key]

    def widest(self) -> tuple[int, int]:
        """The largest output and input width of the layers adapted so far, this one included."""
        rows, columns = self.builder.shared.get("widest", (0, 0))
        widest = max(rows, self.fout), max(columns, self.fin)
        self.builder.shared["widest"] = widest
        return widest

    def bank(self, key: str, numel: int) -> Tensor:
        """A frozen tensor that all layers share and take slices of: as large as the widest of them needs."""
        bank: Tensor = self.shared(key, lambda: self.buffer(numel, self.builder.setup.adapter_itemsize))
        if numel > bank.numel:
            bank.numel = numel
            bank.storage.resize(numel * bank.itemsize)
        return bank

    def only(self, *methods: str) -> None:
        """Raise unless the base weight is plain or packed by one of these methods: PEFT has no layer for it."""
        packed = self.layer.quantised
        if packed is not None and packed.method not in methods:
            method = self.builder.setup.adapter
            raise CannotEstimate(f"PEFT has no {method} layer for weights quantized by {packed.method}")


Tuner = Callable[[Site], Forward]


def base_to_add_to(m: Machine, layer: Linear, x: Tensor) -> Tensor:
    """The layer's own result, which PEFT clones where it comes from a 4-bit layer (`lora/bnb.py` `Linear4bit` and its like)."""
    result = base(m, layer, x)
    if layer.quantised is not None and layer.quantised.method == "bnb_4bit":
        result = ops.copy(m, result)
    return result
