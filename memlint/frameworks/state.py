"""What the framework models collect while a script is walked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from memlint.dialects.context import Context
from memlint.facts import Fact, Problem, TrainingRun
from memlint.read.pyeval.machine import Loop, Machine
from memlint.read.pyeval.values import Instance, possible
from memlint.source import Span
from memlint.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.frameworks.jobs import Started


class Found:
    """A training run with how sure it is that it happens."""

    def __init__(self, run: TrainingRun, shadow: bool, sites: tuple[Span, ...], trainer: object = None) -> None:
        self.run = run
        self.shadow = shadow
        """It happens only when an overridable default is overridden."""
        self.sites = sites
        """The calls that lead to it."""
        self.trainer = trainer
        """The object that trains; the same one trained twice (resumed or not) is one job."""


class Tokenization:
    """What fixes the length of samples: a tokenizer call, blocks of grouped texts, tokens cut by hand."""

    def __init__(self, length: Fact, span: Span, padded: bool, targets: bool, fills: bool = False, by_hand: bool = False) -> None:
        self.length = length
        self.span = span
        self.padded = padded
        self.targets = targets
        """It tokenizes labels (`text_target=`)."""
        self.fills = fills
        """It pads every sample to the length (`padding="max_length"`)."""
        self.by_hand = by_hand
        """The script cuts the tokens itself; a tokenizer's own limit comes first."""


class Collected:
    """Everything found in one script. Nothing here is undone with a branch, so entries carry their own doubts."""

    def __init__(self, context: Context, path: str, habits: Callable[[], Iterable[Problem]] = tuple) -> None:
        self.context = context
        self.path = path
        self.runs: list[Found] = []
        self.tokenizations: list[Tokenization] = []
        self.habits = habits
        """Problems of the script that are looked for when it has a run."""
        self.problems: list[Problem] = []
        self.process_facts: dict[str, Fact] = {}
        """Canonical facts that the script's own process setup decides (`mp.spawn(nprocs=4)`)."""
        self.accelerators: list[Instance] = []
        self.default_dtype: Fact | None = None
        """`torch.set_default_dtype(...)` so far: the dtype of models built from a config."""
        self.started: list[Started] = []
        """Programs that it starts."""
        self.made: list[Instance] = []
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


class Event:
    """Something a training loop does: `backward` or `step`."""

    def __init__(
        self,
        kind: str,
        target: Fact,
        span: Span,
        loops: tuple[Loop, ...],
        conditions: tuple[Fact, ...],
        contexts: tuple[Fact, ...],
        shadow: bool,
        owner: Instance | None = None,
    ) -> None:
        self.kind = kind
        self.target = target
        """The loss, or the optimizer."""
        self.span = span
        self.loops = loops
        self.conditions = conditions
        self.contexts = contexts
        self.shadow = shadow
        self.owner = owner
        """The Accelerator, Fabric or DeepSpeed engine that does it."""


def instances(fact: Fact | None) -> Iterator[Instance]:
    """The objects a fact may stand for."""
    for value in possible(fact) if fact is not None else ():
        if isinstance(value, Instance):
            yield value
