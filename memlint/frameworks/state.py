"""What the framework models collect while a script is walked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from memlint.dialects.context import Context
from memlint.facts import Fact, Problem, TrainingRun
from memlint.read.pyeval.machine import Loop, Machine
from memlint.read.pyeval.values import Instance, possible
from memlint.source import Span


@dataclass(slots=True)
class Found:
    """A training run with how sure it is that it happens."""

    run: TrainingRun
    shadow: bool
    """It happens only when an overridable default is overridden."""
    sites: tuple[Span, ...]
    """The calls that lead to it."""
    trainer: object = None
    """The object that trains; the same one trained twice (resumed or not) is one job."""


@dataclass(slots=True, eq=False)
class Tokenization:
    """A tokenizer call that fixes the length of samples."""

    length: Fact
    span: Span
    padded: bool
    targets: bool
    """It tokenizes labels (`text_target=`)."""
    fills: bool = False
    """It pads every sample to the length (`padding="max_length"`)."""


@dataclass(slots=True)
class Collected:
    """Everything found in one script. Nothing here is undone with a branch, so entries carry their own doubts."""

    context: Context
    path: str
    runs: list[Found] = field(default_factory=list)
    tokenizations: list[Tokenization] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    process_facts: dict[str, Fact] = field(default_factory=dict)
    """Canonical facts that the script's own process setup decides (`mp.spawn(nprocs=4)`)."""
    accelerators: list[Instance] = field(default_factory=list)
    default_dtype: Fact | None = None
    """`torch.set_default_dtype(...)` so far: the dtype of models built from a config."""
    made: list[Instance] = field(default_factory=list)
    """Training arguments and loaded models, in the order of their making."""

    def add(self, machine: Machine, run: TrainingRun, trainer: object = None) -> None:
        """Record a run."""
        if machine.observing:
            return
        self.runs.append(Found(run, machine.shadow > 0, machine.call_sites(), trainer))

    def problem(self, name: str, message: str, span: Span, *related: Span) -> None:
        """Record a problem once."""
        found = Problem(name, message, span, related)
        if found not in self.problems:
            self.problems.append(found)


@dataclass(slots=True, eq=False)
class Event:
    """Something a training loop does: `backward` or `step`."""

    kind: str
    target: Fact
    """The loss, or the optimizer."""
    span: Span
    loops: tuple[Loop, ...]
    conditions: tuple[Fact, ...]
    contexts: tuple[Fact, ...]
    shadow: bool
    owner: Instance | None = None
    """The Accelerator, Fabric or DeepSpeed engine that does it."""


def instances(fact: Fact | None) -> Iterator[Instance]:
    """The objects a fact may stand for."""
    for value in possible(fact) if fact is not None else ():
        if isinstance(value, Instance):
            yield value
