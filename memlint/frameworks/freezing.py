"""Which parameters of a model are trained, from loops and calls that set `requires_grad`."""

from __future__ import annotations

from memlint.facts import Fact, Status, fixed, unknown
from memlint.frameworks.models import is_model
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Instance, Opaque, possible
from memlint.source import Span


def freeze(machine: Machine, owner: Fact, value: Fact) -> None:
    """`parameter.requires_grad = value` for an element of `model[.part].parameters()`."""
    span = next((o.span for o in value.origin if o.span is not None), None)
    for start in possible(owner):
        if not isinstance(start, Opaque):
            continue
        path: list[str] = []
        for step in start.ancestry():
            if isinstance(step, Opaque) and step.operation.startswith("part:"):
                path.insert(0, step.operation.removeprefix("part:"))
            elif is_model(step):
                mark(machine, step, ".".join(path), value, span)
                return


def mark(machine: Machine, model: Instance, part: str, value: Fact, span: Span | None) -> None:
    """A part of a model (the whole one for an empty path) is frozen or released."""
    if not value.known or not isinstance(value.value, bool) or machine.conditions:
        machine.write(model, ".trainable", unknown("which parameters are trained depends on their names", span))
        return
    trainable = model.slots.get(".trainable")
    listed = list(trainable.value.items) if isinstance(trainable, Fact) and isinstance(trainable.value, Array) else []
    if not part:
        machine.write(model, ".frozen", fixed(not value.value, span))
        machine.write(model, ".trainable", None if value.value else fixed(Array(()), span))
    elif value.value and trainable is not None:
        machine.write(model, ".trainable", fixed(Array((*listed, fixed(part, span))), span))
        machine.write(model, ".frozen", fixed(False, span))
    elif not value.value:
        reason = f"`{part}` is frozen, the rest is trained"
        machine.write(model, ".trainable", unknown(reason, span))


def trainable_modules(model: Instance) -> dict[str, Fact]:
    """`trainable.modules`, where the script freezes a part of the model."""
    fact = model.slots.get(".trainable")
    if not isinstance(fact, Fact):
        return {}
    if fact.status is Status.UNKNOWN:
        return {"trainable.modules": fact}
    if not fact.value.items:
        return {}
    names = [item.value for item in fact.value.items]
    return {"trainable.modules": Fact(names, fact.status, fact.origin)}
