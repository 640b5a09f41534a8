"""`with` blocks that matter: autocast, no_grad, accumulate."""

from __future__ import annotations

from collections.abc import Iterable

from memlint.facts import Fact, Origin, Status, default, fixed, unknown
from memlint.frameworks.names import canonical
from memlint.frameworks.native import place, plain
from memlint.read.pyeval.joins import combine, merge
from memlint.read.pyeval.values import Instance, Symbol, possible

_NAMES = {"bfloat16": "bf16-mixed", "bf16": "bf16-mixed", "float16": "fp16-mixed", "half": "fp16-mixed", "fp16": "fp16-mixed"}


def is_autocast(value: object) -> bool:
    """Whether a context manager is torch's autocast."""
    return isinstance(value, Instance) and canonical(value.library) in {
        ("torch", "autocast"),
        ("torch", "autocast_mode.autocast"),
    }


def is_no_grad(value: object) -> bool:
    """Whether a context manager switches gradients off."""
    if isinstance(value, Instance):
        return canonical(value.library) in {("torch", "no_grad"), ("torch", "inference_mode")}
    return isinstance(value, Symbol) and canonical(value.name) in {("torch", "no_grad"), ("torch", "inference_mode")}


def without_gradients(contexts: Iterable[Fact]) -> bool:
    """Whether one of the active contexts switches gradients off."""
    return any(is_no_grad(value) for fact in contexts for value in possible(fact))


def autocast_mode(contexts: Iterable[Fact]) -> Fact | None:
    """The precision that the active contexts give a forward pass, or None without autocast."""
    for fact in contexts:
        values = possible(fact)
        if not any(is_autocast(v) for v in values):
            continue
        modes = [_mode(v) if isinstance(v, Instance) and is_autocast(v) else fixed("fp32", place(fact)) for v in values]
        return merge(modes, fact.decided_by if len(modes) == 2 else "")
    return None


def _mode(context: Instance) -> Fact:
    call = context.call
    first = call.args[0] if call.args else None
    dtype = call.kwargs.get("dtype")
    if dtype is None and first is not None and not isinstance(first.value, (str, bool)) and first.value is not None:
        dtype = first
    if dtype is None and len(call.args) > 1 and not isinstance(call.args[1].value, bool):
        dtype = call.args[1]
    if dtype is None or (dtype.known and dtype.value is None):
        mode = default("fp16-mixed", "torch's default autocast dtype on CUDA", call.span)
        mode = Fact(mode.value, Status.FIXED, (Origin(call.span), *mode.origin))
    else:
        mode = _named(plain(dtype), call)
    enabled = call.kwargs.get("enabled")
    if enabled is None and first is not None and isinstance(first.value, bool):
        enabled = first
    if enabled is None:
        return mode
    flag = plain(enabled)
    if flag.known and flag.value is True:
        return mode
    return combine(lambda on, name: name if on else "fp32", (flag, mode), call.span, "autocast")


def _named(dtype: Fact, call: object) -> Fact:
    if dtype.status is Status.UNKNOWN:
        return unknown(dtype.reason, place(dtype))
    values = [_NAMES.get(str(v).rpartition(".")[2], "fp32") for v in dtype.values]
    if dtype.known:
        return Fact(values[0], dtype.status, dtype.origin)
    return Fact(None, Status.CHOICES, dtype.origin, tuple(values), dtype.reason, dtype.decided_by)
