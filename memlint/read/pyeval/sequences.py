"""Members of known sequences, and plain data as abstract values."""

from __future__ import annotations

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.joins import constant
from memlint.read.pyeval.values import Array, Call, Instance, Table
from memlint.typed import Any

MAX_RANGE = 64
"""Longest `range` that is written out."""


def sequence(value: Any) -> list[Fact] | None:
    """The members of a known sequence, short ranges included."""
    if isinstance(value, Array):
        return None if value.open else list(value.items)
    if isinstance(value, Table):
        return None if value.open else [fixed(key) for key, _ in value.entries()]
    if isinstance(value, str):
        return [fixed(char) for char in value[:MAX_RANGE]] if len(value) <= MAX_RANGE else None
    if isinstance(value, Instance) and ".range" in value.slots:
        bounds: tuple[Fact, ...] = value.slots[".range"]
        if all(f.known and isinstance(f.value, int) for f in bounds):
            try:
                numbers = range(*(f.value for f in bounds))
            except (ValueError, TypeError):
                return None
            if len(numbers) <= MAX_RANGE:
                return [Fact(n, Status.FIXED, bounds[-1].origin) for n in numbers]
    return None


def as_value(value: Any, call: Call) -> Any:
    """A plain Python value as an abstract one."""
    if isinstance(value, dict):
        return Table({k: fixed(as_value(v, call), call.span) for k, v in value.items() if constant(k)})
    if isinstance(value, (list, tuple, set)):
        return Array([fixed(as_value(v, call), call.span) for v in value], type(value).__name__)
    return value


# --- environment ----------------------------------------------------------------------------------------------------
