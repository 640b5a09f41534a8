"""Which parameters of a model are trained, from loops and calls that set `requires_grad`.

A model's slot `.trainable` holds what is known: nothing there (all are trained), a list of the names that are trained, or unknown.
The towers of a vision-language model that are frozen whole have slots of their own, for their facts are `vision.*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from memlint.facts import Fact, Status, fixed, unknown
from memlint.frameworks.models import VISION_LANGUAGE, is_model, models_in
from memlint.frameworks.native import place
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Instance, Opaque, possible
from memlint.source import Span
from memlint.typed import Any, NamedTuple

_MEMBERS = frozenset(
    """element parameters named_parameters children named_children modules named_modules values items enumerate list tuple iter zip
    reversed chain filter map sorted get_model get_base_model unwrap_model""".split()  # noqa: SIM905
)
"""Steps from a module to its members that leave out none, and calls that give the module itself."""


class _Place(NamedTuple):
    """A part of a model, by the dotted name of the attribute it is reached through (empty: the whole model)."""

    model: Instance
    path: str = ""
    whole: bool = True
    """False: some members of the part, and which is not known."""


def freeze(machine: Machine, made: Iterable[Instance], owner: Fact, value: Fact) -> None:
    """`owner.requires_grad = value`, for a module, a parameter, or an element of `model[.part].parameters()`."""
    for found in dict.fromkeys(p for start in possible(owner) for p in _places(start, list(made))):
        _mark(machine, found, value)


def freeze_by_name(machine: Machine, model: Instance, method: str, span: Span) -> None:
    """`model.freeze_feature_encoder()`: a part that the method's name says, of a model that is trained otherwise."""
    if model.slots.get(".trainable") is None:
        _write(machine, model, unknown(f"`{method}()` freezes a part of the model, the rest is trained", span))


def _places(value: Any, made: list[Instance], depth: int = 24) -> Iterator[_Place]:
    if isinstance(value, Instance):
        yield from (_Place(model) for model in models_in(value))
    elif isinstance(value, Array) and depth:
        for item in value.items:
            for inner in possible(item):
                yield from _places(inner, made, depth - 1)
    if not isinstance(value, Opaque) or not depth:
        return
    for model in made:  # a head that the script put there
        for name, fact in model.slots.items():
            if isinstance(fact, Fact) and fact.value is value and isinstance(name, str) and not name.startswith("."):
                yield _Place(model, name)
                return
    kind, _, name = value.operation.rpartition(":")
    parents = value.parents if name in {"merge", "chain"} else value.parents[:1]
    for found in (p for parent in parents for inner in possible(parent) for p in _places(inner, made, depth - 1)):
        if kind in {"part", "attribute"}:
            yield found._replace(path=f"{found.path}.{name}".strip("."))
        else:
            every = name.rpartition(".")[2] in _MEMBERS or _unpacks(value)
            yield found if every else found._replace(whole=False)


def _unpacks(value: Opaque) -> bool:
    """`for name, parameter in ...`: a part of each element, not an element of the sequence."""
    start: Any = value
    while isinstance(start, Opaque) and start.operation in {"item", "unpack"}:
        start = start.parents[0].value
    return value.operation == "item" and isinstance(start, Opaque) and start.operation == "element"


def _mark(machine: Machine, part: _Place, value: Fact) -> None:
    span = place(value)
    held = part.model.slots.get(".trainable")
    listed = held.value.items if isinstance(held, Fact) and isinstance(held.value, Array) else None
    certain = not machine.conditions and not machine.left_early() and value.known and isinstance(value.value, bool)
    patterns = None if machine.conditions or machine.left_early() else _patterns(value)
    towers = _towers(machine, part) if held is None and value.known and value.value is False else ()
    if towers:
        for key in towers:
            machine.write(part.model, f".part:{key}", fixed(False, span))
        return
    if patterns is not None and not part.path and part.whole:
        _write(machine, part.model, fixed(Array([fixed(text, span) for text in patterns]), span))
    elif (value.known and value.value is True and held is None) or (value.known and value.value is False and listed == ()):
        return  # it changes nothing: all are trained already, or none is
    elif not certain:
        _write(machine, part.model, unknown("which parameters are trained depends on their names", span))
    elif not part.path and part.whole:
        _write(machine, part.model, None if value.value else fixed(Array(()), span))
    elif not value.value:
        rest = "the rest is trained" if listed is None else "of what is trained"
        name = f"`{part.path}`" if part.whole and part.path else "a part of the model"
        _write(machine, part.model, unknown(f"{name} is frozen, {rest}", span))
    elif part.whole and listed is not None:
        _write(machine, part.model, fixed(Array((*listed, fixed(part.path, span))), span))
    else:
        _write(machine, part.model, unknown(f"some parameters of `{part.path or 'the model'}` are released", span))


_TOWERS: dict[str, tuple[str, ...]] = {
    "vision_tower": ("vision.trainable",), "vision_model": ("vision.trainable",), "vision_encoder": ("vision.trainable",),
    "visual": ("vision.trainable", "vision.aligner_trainable"), "multi_modal_projector": ("vision.aligner_trainable",),
    "mm_projector": ("vision.aligner_trainable",), "connector": ("vision.aligner_trainable",),
    "merger": ("vision.aligner_trainable",), "language_model": ("vision.llm_trainable",),
}  # fmt: skip
"""Parts of vision-language models as transformers 5.24 names them (Qwen's `visual` holds its merger), and the facts about them."""


def _towers(machine: Machine, part: _Place) -> tuple[str, ...]:
    """The parts of a vision-language model that are frozen: by the attribute, or by their name in the parameters' names."""
    if not re.search(f"{VISION_LANGUAGE}|ImageTextToText|Vision2Seq", str(part.model.slots[".class"])) or not part.whole:
        return ()
    names: list[str] | None = [part.path.rpartition(".")[2]]
    if machine.conditions:
        inner = machine.conditions_of_round() if machine.loops else ()
        names = _patterns(inner[0]) if len(inner) == len(machine.conditions) == 1 and not part.path else None
    elif machine.left_early():
        names = None
    found = [_TOWERS.get(name.strip(".").rpartition(".")[2], ()) for name in names or ()]
    return tuple(key for keys in found for key in keys) if found and all(found) else ()


def _write(machine: Machine, model: Instance, state: Fact | None) -> None:
    machine.write(model, ".trainable", state)


def _patterns(value: Fact) -> list[str] | None:
    """The texts whose occurrence in a parameter's name makes the value true (`"lora" in name`), or None."""
    step = value.value
    if not isinstance(step, Opaque):
        return None
    if step.operation in {"Or", "any", "bool"}:
        parts = [_patterns(parent) for parent in step.parents]
        return [text for part in parts for text in part or ()] if parts and all(parts) else None
    if step.operation == "In" and isinstance(step.parents[0].value, str) and step.parents[0].known:
        return [step.parents[0].value]
    if step.operation == "call:startswith" and len(step.parents) == 2 and isinstance(step.parents[1].value, str):
        return [step.parents[1].value]
    return None


def is_frozen(model: Instance) -> bool:
    """Whether nothing of a model is trained."""
    state = model.slots.get(".trainable")
    return isinstance(state, Fact) and state.known and not state.value.items and not _heads(model)


def _heads(model: Instance) -> list[str]:
    """Modules that the script puts into a model (`model.fc = nn.Linear(...)`)."""
    return [
        name.removeprefix(".set:")
        for name in model.slots
        if isinstance(name, str)
        and name.startswith(".set:")
        and isinstance(made := model.slots.get(name.removeprefix(".set:")), Fact)
        and any((isinstance(v, Opaque) and v.operation.startswith("call:")) or _is_module(v) for v in possible(made))
    ]


def _is_module(value: Any) -> bool:
    return isinstance(value, Instance) and value.library.startswith("torch.nn") and not is_model(value)


def trainable_modules(model: Instance) -> dict[str, Fact]:
    """`trainable.modules`, where the script freezes a part of the model that no adapter freezes anyway."""
    state = model.slots.get(".trainable")
    if not isinstance(state, Fact):
        parts = {str(k).removeprefix(".part:"): f for k, f in model.slots.items() if str(k).startswith(".part:")}
        return {key: Fact(False, Status.FIXED, fact.origin) for key, fact in parts.items()}
    if not state.known:
        reason = state.reason or "which parameters are trained depends on a condition"
        return {"trainable.modules": unknown(reason, place(state))}
    names = list(dict.fromkeys([*(item.value for item in state.value.items), *(() if state.value.items else _heads(model))]))
    adapter = model.slots.get(".adapter")
    if not names and isinstance(adapter, Fact) and not (adapter.known and adapter.value is None):
        return {}
    return {"trainable.modules": Fact(names, state.status if state.status is Status.DEFAULT else Status.FIXED, state.origin)}
