"""The names a rule may speak of: every canonical fact, and terms about the estimate, the card and the model.

`verdict` (fits, tight, does_not_fit) is unknown without a target card; `fits_for_sure` is then false. `estimate.*`
are bytes (`needed`, `required`, `allocated`, `reserved`, `device`, each with `.low`, `.expected`, `.high`;
`most.<component>` and `phase.<phase>` at their own peaks) and shares of the peak (`share.<component>`); `gpu.*`,
`architecture.*` and `host.capacity` describe the card, the model and the configured host RAM; `largest.micro_batch`
and `largest.sequence_length` are what would fit. `problem_message` is the text of the problem that a finding is about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from memlint.assess import FITS, Assessment, bf16_of, largest_micro_batch, largest_sequence
from memlint.assess import UNKNOWN as NO_VERDICT
from memlint.facts import Status
from memlint.memory import Estimate
from memlint.memory.result import COMPONENTS
from memlint.rules.kinds import Kind

QUANTITIES = ("allocated", "required", "reserved", "device", "needed")
"""`needed` is what a card must have free for the run: required memory and the CUDA context."""
PHASES = ("load", "forward", "loss", "backward", "optimizer_step", "evaluation")
VERDICTS = ("fits", "tight", "does_not_fit")

_ESTIMATE: dict[str, Callable[[Estimate], Any]] = {
    "parameters": lambda estimate: estimate.parameters,
    "trainable_parameters": lambda estimate: estimate.trainable_parameters,
    "trainable_share": lambda estimate: estimate.trainable_parameters / max(estimate.parameters, 1),
    "peak_phase": lambda estimate: estimate.peak_phase,
}
_INTERVALS = frozenset(f"{name}{end}" for name in QUANTITIES for end in ("", ".low", ".expected", ".high"))


def _add_parts() -> None:
    for component in COMPONENTS:

        def held(estimate: Estimate, component: str = component) -> int:
            return max((instant.components.get(component, 0) for instant in estimate.timeline), default=0)

        def share(estimate: Estimate, component: str = component) -> float:
            return estimate.components.get(component, 0) / max(estimate.allocated.expected, 1)

        _ESTIMATE[f"most.{component}"] = held
        _ESTIMATE[f"share.{component}"] = share
    for phase in PHASES:

        def peak(estimate: Estimate, phase: str = phase) -> int:
            return max((instant.peak_bytes for instant in estimate.timeline if instant.phase == phase), default=0)

        _ESTIMATE[f"phase.{phase}"] = peak


_add_parts()

_GPU: Mapping[str, tuple[Kind, Callable[[Any], Any]]] = {
    "name": (Kind.TEXT, lambda gpu: gpu.name),
    "capacity": (Kind.NUMBER, lambda gpu: gpu.capacity_bytes),
    "bf16": (Kind.BOOL, bf16_of),
    "compute_capability": (
        Kind.NUMBER,
        lambda gpu: gpu.compute_capability and gpu.compute_capability[0] + gpu.compute_capability[1] / 10,
    ),
}
_ARCHITECTURE: Mapping[str, Kind] = {
    "model_type": Kind.TEXT,
    "params": Kind.NUMBER,
    "hidden_size": Kind.NUMBER,
    "layers": Kind.NUMBER,
    "heads": Kind.NUMBER,
    "vocab_size": Kind.NUMBER,
    "max_positions": Kind.NUMBER,
    "tied": Kind.BOOL,
    "dtype": Kind.TEXT,
    "exact": Kind.BOOL,
}
_LARGEST: Mapping[str, Callable[[Assessment], int | None]] = {
    "micro_batch": largest_micro_batch,
    "sequence_length": largest_sequence,
}


@dataclass(frozen=True, slots=True)
class Facts:
    """The scope of one assessment (see `expression.Scope`). `message` is the problem a finding is being written for."""

    assessment: Assessment
    message: str = ""

    def values(self, name: str) -> tuple[Any, ...]:
        """Every value a fact or term may have; empty when unknown or not applicable (no card, no estimate)."""
        head, _, rest = name.partition(".")
        term = _TERMS.get(head)
        if term is None:
            return self.assessment.run.fact(name).values
        value = term(self, rest)
        return () if value is None else (value,)

    def known(self, name: str) -> bool:
        """True when there is exactly one value."""
        return len(self.values(name)) == 1

    def absent(self, name: str) -> bool:
        """True when nothing speaks of the fact."""
        return name not in self.assessment.run.facts

    def explicit(self, name: str) -> bool:
        """True when the input states the fact's value or its choices."""
        return self.assessment.run.fact(name).status in (Status.FIXED, Status.CHOICES)

    def problem(self, name: str) -> bool:
        """True when the reader reported this problem."""
        return any(problem.name == name for problem in self.assessment.run.problems)

    def _verdict(self, _: str) -> Any:
        verdict = self.assessment.verdict
        return None if verdict == NO_VERDICT else verdict

    def _fits_for_sure(self, _: str) -> bool:
        return self.assessment.verdict == FITS

    def _estimate(self, rest: str) -> Any:
        estimate = self.assessment.estimate
        if estimate is None:
            return None
        if rest in _INTERVALS:
            name, _, end = rest.partition(".")
            interval = self.assessment.needed if name == "needed" else getattr(estimate, name)
            return getattr(interval, end or "expected")
        read = _ESTIMATE.get(rest)
        return read(estimate) if read else None

    def _gpu(self, rest: str) -> Any:
        gpu = self.assessment.gpu
        return _GPU[rest][1](gpu) if gpu and rest in _GPU else None

    def _architecture(self, rest: str) -> Any:
        architecture = self.assessment.architecture
        return getattr(architecture, rest) if architecture and rest in _ARCHITECTURE else None

    def _largest(self, rest: str) -> Any:
        return _LARGEST[rest](self.assessment) if rest in _LARGEST else None

    def _host(self, rest: str) -> Any:
        return self.assessment.settings.host_ram if rest == "capacity" else None

    def _message(self, _: str) -> Any:
        return self.message or None


_TERMS: Mapping[str, Callable[[Facts, str], Any]] = {
    "verdict": Facts._verdict,
    "fits_for_sure": Facts._fits_for_sure,
    "estimate": Facts._estimate,
    "gpu": Facts._gpu,
    "architecture": Facts._architecture,
    "largest": Facts._largest,
    "host": Facts._host,
    "problem_message": Facts._message,
}


class Names:
    """The schema of those names (see `expression.Schema`); pages are checked against it."""

    def kind(self, name: str) -> Kind | None:
        """What a name is, or None when there is no such name."""
        head, _, rest = name.partition(".")
        if name in ("verdict", "problem_message"):
            return Kind.TEXT
        if name == "fits_for_sure":
            return Kind.BOOL
        if head == "estimate":
            return (Kind.TEXT if rest == "peak_phase" else Kind.NUMBER) if rest in _ESTIMATE or rest in _INTERVALS else None
        if head == "gpu":
            return _GPU[rest][0] if rest in _GPU else None
        if head == "architecture":
            return _ARCHITECTURE.get(rest)
        if head == "largest":
            return Kind.NUMBER if rest in _LARGEST else None
        if name == "host.capacity":
            return Kind.NUMBER
        return _fact_kind(name)

    def allowed(self, name: str) -> tuple[str, ...]:
        """The texts a name may be; empty when any."""
        if name == "verdict":
            return VERDICTS
        if name == "estimate.peak_phase":
            return PHASES
        return _fact_values(name)


def _fact_kind(name: str) -> Kind | None:
    from memlint.facts.keys import KEYS

    key = KEYS.get(name)
    return None if key is None else _KINDS.get(key.kind, Kind.ANY)


def _fact_values(name: str) -> tuple[str, ...]:
    from memlint.facts.keys import KEYS

    key = KEYS.get(name)
    return key.values if key else ()


_KINDS: Mapping[str, Kind] = {
    "bool": Kind.BOOL,
    "int": Kind.NUMBER,
    "number": Kind.NUMBER,
    "text": Kind.TEXT,
}
