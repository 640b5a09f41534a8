"""The same run over more and more GPUs: what one of them needs, for each way to divide the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memlint.assess import Assessment, estimate_with
from memlint.typed import Any, NamedTuple

NODE = 8
"""GPUs of one node; more are more nodes."""

Changes = Mapping[str, Any]

_DATA: tuple[tuple[str, Changes], ...] = (
    ("DDP", {"parallel.strategy": "ddp"}),
    ("ZeRO-1", {"parallel.strategy": "zero1"}),
    ("ZeRO-2", {"parallel.strategy": "zero2"}),
    ("ZeRO-3", {"parallel.strategy": "zero3"}),
    ("ZeRO-3, optimizer on the CPU", {"parallel.strategy": "zero3", "parallel.offload_optimizer": "cpu"}),
    ("FSDP2", {"parallel.strategy": "fsdp2", "parallel.reshard_after_forward": True}),
    ("FSDP2, parameters on the CPU", {"parallel.strategy": "fsdp2", "parallel.offload_params": "cpu"}),
)
_MEGATRON: Changes = {
    "parallel.strategy": "megatron",
    "parallel.distributed_optimizer": True,
    "parallel.sequence_parallel": True,
    "optimizer.name": "megatron_distributed_adam",
    "optimizer.master_weights": True,
    "optimizer.grad_dtype": "float32",
}


class Row(NamedTuple):
    """One strategy: bytes that each GPU must have, by number of GPUs; None where it cannot be estimated or does not apply."""

    strategy: str
    needed: tuple[int | None, ...]


def scaled(assessment: Assessment, counts: Sequence[int]) -> tuple[Row, ...]:
    """A row for each strategy that applies to the run's model."""
    plain = all(assessment.run.value(key) in (None, "none") for key in ("adapter.method", "quantization.method"))
    ways: list[tuple[str, list[Changes | None]]] = [
        (name, [_data(changes, count) for count in counts]) for name, changes in _DATA
    ]
    if plain:
        ways.append(("Megatron, tensor parallel", [_megatron(count, "tensor") for count in counts]))
        ways.append(("Megatron, pipeline parallel", [_megatron(count, "pipeline") for count in counts]))
        if _experts(assessment):
            ways.append(("Megatron, expert parallel", [_megatron(count, "expert") for count in counts]))
    return tuple(Row(name, tuple(_needed(assessment, changes) for changes in each)) for name, each in ways)


def _spread(count: int) -> Changes:
    """So many GPUs, eight to a node."""
    return {"parallel.gpus": min(count, NODE), "parallel.nodes": -(-count // NODE)}


def _data(changes: Changes, count: int) -> Changes | None:
    """A data-parallel strategy; on one GPU nothing is divided, but DeepSpeed still offloads."""
    if count > 1 or "parallel.offload_optimizer" in changes:
        return {**changes, **_spread(count)}
    return None if "parallel.offload_params" in changes else {"parallel.strategy": "none", **_spread(1)}


def _megatron(count: int, degree: str) -> Changes:
    """Megatron with one degree as large as a node, data parallelism beyond it; a pipeline has two micro-batches for each of its ranks."""
    ranks = min(count, NODE)
    filled = {"batch.gradient_accumulation_steps": 2 * ranks} if degree == "pipeline" else {}
    return {**_MEGATRON, **_spread(count), **filled, f"parallel.{degree}": ranks}


def _experts(assessment: Assessment) -> bool:
    config = assessment.architecture.config if assessment.architecture else {}
    return any(config.get(name) for name in ("num_local_experts", "n_routed_experts", "num_experts"))


def _needed(assessment: Assessment, changes: Changes | None) -> int | None:
    if changes is None:
        return None
    found = assessment._replace(estimate=estimate_with(assessment, changes)).needed
    return found.expected if found else None
