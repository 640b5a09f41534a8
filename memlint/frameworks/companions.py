"""Models that a TRL trainer keeps on the card beside the one it trains: reward models, a teacher; and PPO's value model."""

from __future__ import annotations

from memlint.dialects.from_pretrained import load_facts
from memlint.facts import Fact, Status
from memlint.frameworks.models import is_model, model_facts, models_in
from memlint.read.pyeval.values import Array, Class, Instance, possible
from memlint.typed import Any
from memlint.versions import Versions

SLOTS = ("reward_funcs", "reward_model", "teacher_model")
"""Trainer parameters that take a model, its name, or a list of them (TRL 1.16: GRPO, RLOO, OnlineDPO, PPO, GKD)."""


def companions(trainer: Instance, native: dict[str, Fact], versions: Versions) -> dict[str, Fact]:
    """`model.companions` and `model.value_model`, where the trainer has such models."""
    held: dict[str, Any] = {}
    origin: Fact | None = None
    for slot in SLOTS:
        given = trainer.slots.get(slot)
        for value in _members(given) if isinstance(given, Fact) else ():
            named = _named(value, native, versions)
            if named is not None:
                held[named[0]], origin = named[1], given
    facts: dict[str, Fact] = {}
    if origin is not None:
        facts["model.companions"] = Fact(held, Status.FIXED, origin.origin)
    value_model = trainer.slots.get("value_model")
    for value in _members(value_model) if isinstance(value_model, Fact) else ():
        named = _named(value, native, versions)
        if named is not None and isinstance(value_model, Fact):
            facts["model.value_model"] = Fact(named[0], Status.FIXED, value_model.origin)
    return facts


def held_beside(trainer: Instance, versions: Versions) -> dict[str, Fact]:
    """`model.companions` of a trainer written in the script that keeps further models in its attributes (a teacher)."""
    if not isinstance(trainer.cls, Class):
        return {}
    trained = (
        [model for value in _members(trainer.slots["model"]) for model in models_in(value)] if "model" in trainer.slots else []
    )
    found: dict[str, Fact] = {}
    held: dict[str, Any] = {}
    for slot, given in trainer.slots.items():
        beside = isinstance(given, Fact) and isinstance(slot, str) and slot[:1] != "." and slot != "model"
        for value in possible(given) if beside else ():
            named = _named(value, {}, versions) if is_model(value) and not any(value is model for model in trained) else None
            if named is not None:
                held[named[0]] = named[1]
                found["model.companions"] = Fact(held, Status.FIXED, given.origin)
    return found


def _members(fact: Fact) -> list[Any]:
    found: list[Any] = []
    for value in possible(fact):
        if isinstance(value, Array):
            found += [inner for item in value.items for inner in possible(item)]
        else:
            found.append(value)
    return found


def _named(value: Any, native: dict[str, Fact], versions: Versions) -> tuple[str, str | None] | None:
    """Id and dtype (or quantisation) of a model; None for a reward function and for what is not followed.

    A name is loaded with the policy's `model_init_kwargs` (TRL 1.16 `trainer/grpo_trainer.py`).
    """
    if isinstance(value, str):
        prefix = "model_init_kwargs."
        facts = load_facts("", {k[len(prefix) :]: f for k, f in native.items() if k.startswith(prefix)}, versions)
        return value, _known(facts, "model.dtype")
    inner = models_in(value)
    if not inner:
        return None
    facts, _ = model_facts(inner[0], versions)
    name = _known(facts, "model.id")
    quantization = _known(facts, "quantization.method")
    if name is None:
        return None
    return name, quantization if quantization not in (None, "none") else _known(facts, "model.dtype")


def _known(facts: dict[str, Fact], key: str) -> str | None:
    fact = facts.get(key)
    return str(fact.value) if fact is not None and fact.known and fact.value is not None else None
