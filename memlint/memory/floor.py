"""What a run needs at the least where no page describes its model: the parameters are counted, the activations are not known.

Weights (quantised and adapted as the setup says, over the Linears that the catalogue or transformers counted), the gradients of
what is trained and its optimizer states are alive together when the optimizer steps.
"""

from __future__ import annotations

from memlint.facts import TrainingRun
from memlint.gpus.gpu import Gpu
from memlint.memory import optimizer
from memlint.memory.build import Builder
from memlint.memory.program import machine_for
from memlint.memory.setup import setup_of
from memlint.memory.tensor import Storage
from memlint.models.architecture import Architecture
from memlint.typed import NamedTuple


class Floor(NamedTuple):
    """Bytes on one rank."""

    weights: int
    gradients: int
    states: int

    @property
    def total(self) -> int:
        """What is there at once."""
        return self.weights + self.gradients + self.states

    def __str__(self) -> str:  # a clause for a person
        parts = ", ".join(f"{name} {count / 2**30:.1f}" for name, count in (
            ("weights", self.weights), ("gradients", self.gradients), ("optimizer states", self.states)) if count)  # fmt: skip
        return f"without activations, which are not known, it takes {self.total / 2**30:.1f} GiB ({parts})"


def floor(run: TrainingRun, architecture: Architecture, gpu: Gpu | None) -> Floor | None:
    """The least that one rank holds; None for a model whose parameters nobody counted. Raises `CannotEstimate` as `estimate` does."""
    if architecture.params is None:
        return None
    setup = setup_of(run, architecture, gpu, [])
    machine = machine_for(setup, architecture)
    builder = Builder(machine, setup, architecture.model_type)
    rest = architecture.params
    for name, fan_in, fan_out, count in architecture.linears:
        if fan_in * fan_out * count <= rest:  # else a head that shares the embedding
            builder.linear(name, fan_in, fan_out, copies=count)
            rest -= fan_in * fan_out * count
    builder.parameter("rest", "embedding", (rest,))
    trained = [parameter for parameter in builder.parameters if parameter.node is not None]
    sharding = setup.sharding
    scattered = sharding.shards_weights or sharding.strategy == "zero2"
    gradients = sum(
        (sharding.share(parameter.numel) if scattered else parameter.numel) * (setup.grad_itemsize or parameter.itemsize)
        for parameter in trained
    )
    return Floor(
        _bytes([*(parameter.storage for parameter in builder.parameters), *builder.extra]),
        0 if setup.in_backward or sharding.offload_optimizer else gradients,
        _bytes(optimizer.states(machine, setup, trained)),
    )


def _bytes(storages: list[Storage]) -> int:
    return sum(storage.nbytes for storage in storages)
