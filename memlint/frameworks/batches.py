"""Batches that a loop makes itself: their size from the tensors that are built."""

from __future__ import annotations

from memlint.facts import Fact
from memlint.frameworks.native import plain
from memlint.read.pyeval.values import Array, Opaque, possible

_MAKERS = frozenset({"randint", "rand", "randn", "zeros", "ones", "empty", "full"})


def tensor_shape(loss: Fact) -> dict[str, Fact]:
    """`batch.micro_batch_size` and `batch.sequence_length` of `randint(low, high, (batch, length))` or of rows cut from a text.

    nanoGPT's form: `ix = torch.randint(n, (batch,))`, `torch.stack([data[i : i + length] for i in ix])`.
    """
    facts: dict[str, Fact] = {}
    for start in possible(loss):
        for value in start.ancestry(2000) if isinstance(start, Opaque) else ():
            if not isinstance(value, Opaque):
                continue
            shape = _shape(value)
            if shape and "batch.micro_batch_size" not in facts:
                facts["batch.micro_batch_size"] = shape[0]
                if len(shape) == 2:
                    facts.setdefault("batch.sequence_length", shape[1])
            elif value.operation == "slice" and len(value.parents) == 4:
                length = _window(value.parents[1], value.parents[2])
                if length is not None:
                    facts.setdefault("batch.sequence_length", length)
    return facts if "batch.micro_batch_size" in facts else {}


def _shape(value: Opaque) -> list[Fact]:
    """The one or two sizes of a made tensor."""
    if value.call is None or not value.call.name.startswith("torch."):
        return []
    if value.call.name.rpartition(".")[2] not in _MAKERS:
        return []
    size = value.call.kwargs.get("size")
    candidates = [size] if size is not None else [a for a in value.call.args if isinstance(a.value, Array)]
    for candidate in candidates:
        if isinstance(candidate.value, Array) and len(candidate.value.items) in (1, 2):
            sizes = [plain(item) for item in candidate.value.items]
            if all(isinstance(v, int) and v > 0 for s in sizes for v in s.values) and all(s.values for s in sizes):
                return sizes
    return []


def _window(start: Fact, stop: Fact) -> Fact | None:
    """n of `data[i : i + n]`."""
    for value in possible(stop):
        if isinstance(value, Opaque) and value.operation == "Add" and len(value.parents) == 2:
            length = plain(value.parents[1])
            if value.parents[0].value is start.value and length.values and all(isinstance(v, int) for v in length.values):
                return length
    return None
