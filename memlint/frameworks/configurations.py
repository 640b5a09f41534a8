"""Configuration objects of transformers and TRL: what a script gives them, changes later, and reads from them."""

from __future__ import annotations

from memlint.defaults import default_fact, field_names
from memlint.dialects.trl import OBJECTIVES
from memlint.facts import Fact, Status, fixed
from memlint.frameworks.names import canonical, class_name, root_of
from memlint.frameworks.native import arguments
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import REST, Call, Instance, Symbol, Table
from memlint.source import Span
from memlint.typed import Any
from memlint.versions import Versions

ARGUMENT_CLASSES = frozenset(
    {"TrainingArguments", "Seq2SeqTrainingArguments", "SentenceTransformerTrainingArguments",
     "CrossEncoderTrainingArguments", "SparseEncoderTrainingArguments"}
)  # fmt: skip
"""Training arguments of transformers and sentence-transformers; TRL's are `OBJECTIVES`."""

OTHER_CLASSES = frozenset({"ModelConfig", "ScriptArguments", "DatasetMixtureConfig"})


def is_arguments(root: str, name: str) -> bool:
    """Whether a class holds training arguments."""
    if root == "trl":
        return name.endswith("Config") and name not in OTHER_CLASSES
    return name in ARGUMENT_CLASSES or (name in OBJECTIVES and root == "unsloth") or name == "UnslothTrainingArguments"


def new_arguments(machine: Machine, name: str, call: Call, versions: Versions) -> Fact:
    """A configuration object."""
    instance = Instance(Symbol(name), call)
    construct_arguments(machine, instance, call, versions)
    return fixed(instance, call.span)


def construct_arguments(machine: Machine, instance: Instance, call: Call, versions: Versions) -> None:
    """What the constructor does: it takes its arguments, and resolves the alias `gradient_checkpointing`.

    transformers 5.13 renamed it to `activation_checkpointing`; the alias counts in `__post_init__` only, so setting it on the
    finished object changes nothing there.
    """
    for key, fact in call.kwargs.items():
        machine.write(instance, key, fact)
    if call.args:
        machine.write(instance, "output_dir", call.args[0])
    if call.open:
        machine.write(instance, REST, call.open)
    if versions.at_least("transformers", "5.13") and "gradient_checkpointing" in instance.slots:
        instance.slots.setdefault("activation_checkpointing", instance.slots["gradient_checkpointing"])
    machine.write(instance, ".built", True)
    for key in [k for k in instance.slots if str(k).startswith(".set:")]:
        machine.erase(instance, key)


def config_class(instance: Instance) -> tuple[str, str]:
    """(library, class) under which `memlint.defaults` knows a configuration object's class."""
    name = class_name(instance)
    if name in OBJECTIVES or name in OTHER_CLASSES:
        return "trl", name
    if root_of(instance) == "trl":
        return "trl", "_BaseConfig"
    return "transformers", "Seq2SeqTrainingArguments" if name.startswith("Seq2Seq") else "TrainingArguments"


def configuration_fields(name: str) -> frozenset[str]:
    """The recorded fields of a library's configuration class; empty for other classes."""
    root, tail = canonical(name)
    if not is_arguments(root, tail) and tail not in OTHER_CLASSES:
        return frozenset()
    return field_names(*config_class(Instance(Symbol(name), Call(name, (), {}, Span("", 1)))))


def default_attribute(instance: Instance, name: str, versions: Versions) -> Fact | None:
    """An attribute that the script leaves to the library."""
    library, cls = config_class(instance)
    fact = default_fact(library, cls, name, versions)
    if fact.status is Status.UNKNOWN:
        return None
    if isinstance(fact.value, dict):
        return fixed(Table({k: fixed(v) for k, v in fact.value.items()}))
    if isinstance(fact.value, list):
        return None
    return fact


def native_arguments(instance: Instance, versions: Versions) -> dict[str, Fact]:
    """The object's arguments as the framework will read them, as native facts."""
    given: dict[str, Fact] = {
        k: f for k, f in instance.slots.items() if isinstance(k, str) and isinstance(f, Fact) and not k.startswith(".")
    }
    renamed = versions.at_least("transformers", "5.13")
    if (
        (renamed and ".set:gradient_checkpointing" in instance.slots and "activation_checkpointing" in given)
        or (renamed and ".set:gradient_checkpointing" in instance.slots)
        or (renamed and "activation_checkpointing" in given)
    ):
        given.pop("gradient_checkpointing", None)
    defaults = {name: fact for name in given if (fact := default_attribute(instance, name, versions)) is not None}
    native = arguments(given, defaults)
    rest: Any = instance.slots.get(REST)
    if isinstance(rest, str) and rest:
        for name in _MEMORY_ARGUMENTS:
            native.setdefault(name, Fact(None, Status.UNKNOWN, (), reason=rest))
    return native


_MEMORY_ARGUMENTS = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "optim", "gradient_checkpointing",
    "eval_strategy",
)  # fmt: skip
"""Arguments that an unknown `**kwargs` may set."""


def site(instance: Instance) -> tuple[str, Span]:
    """The argument dialect and the call of a configuration object."""
    return ("trl" if root_of(instance) == "trl" else "hf_arguments"), instance.call.span
