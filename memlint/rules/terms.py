"""The words of a rule beside the canonical facts: terms about the estimate, the verdict, the card and the model.

`verdict` (fits, tight, does_not_fit) is unknown without a target card; `fits_for_sure` is then false. `estimate.*` are
bytes (`needed`, `required`, `allocated`, `reserved`, `device` and `host`, each with `.low`, `.expected`, `.high`; `most.<component>`
and `phase.<phase>` at their own peaks) and shares of the peak (`share.<component>`). `gpu.*`, `architecture.*` and
`host.capacity` describe the card, the model and the configured host memory. `largest.micro_batch` and
`largest.sequence_length` are what would fit. `problem_message` is the text of the problem that a finding is about.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.assess import UNKNOWN, Assessment, bf16_of, largest_micro_batch, largest_sequence
from memlint.memory import Estimate
from memlint.memory.result import COMPONENTS
from memlint.rules.expression import Kind
from memlint.typed import Any, NamedTuple

QUANTITIES = ("allocated", "required", "reserved", "device", "needed")
"""`needed` is what a card must have for the run: required memory and the CUDA context."""
PHASES = ("load", "forward", "loss", "backward", "optimizer_step", "evaluation", "generation")
VERDICTS = ("fits", "tight", "does_not_fit")
PROBLEM_MESSAGE = "problem_message"


class Term(NamedTuple):
    """What a term is, and its value for an assessment (None: unknown or not applicable)."""

    kind: Kind
    read: Callable[[Assessment], Any]


def _of_estimate(read: Callable[[Estimate], Any]) -> Callable[[Assessment], Any]:
    return lambda assessment: read(assessment.estimate) if assessment.estimate else None


def _interval(name: str, end: str) -> Callable[[Assessment], Any]:
    def read(assessment: Assessment) -> Any:
        if assessment.estimate is None:
            return None
        interval = assessment.needed if name == "needed" else getattr(assessment.estimate, name)
        return getattr(interval, end or "expected")

    return read


def _most(component: str) -> Callable[[Assessment], Any]:
    return _of_estimate(lambda e: max((instant.components.get(component, 0) for instant in e.timeline), default=0))


def _share(component: str) -> Callable[[Assessment], Any]:
    return _of_estimate(lambda e: e.components.get(component, 0) / max(e.allocated.expected, 1))


def _phase(phase: str) -> Callable[[Assessment], Any]:
    return _of_estimate(lambda e: max((i.peak_bytes for i in e.timeline if i.phase == phase), default=0))


def _architecture(field: str) -> Callable[[Assessment], Any]:
    return lambda assessment: getattr(assessment.architecture, field, None)


def _experts(assessment: Assessment) -> int | None:
    """Experts a layer; 0 for a dense model. The keys are those of `configuration_*.py` of transformers 5.24."""
    if assessment.architecture is None:
        return None
    config = assessment.architecture.config
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for key in ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"):
            if isinstance(part.get(key), int):
                return int(part[key])
    return 0


def _host(end: str) -> Callable[[Assessment], Any]:
    return _of_estimate(lambda e: getattr(e.host_bytes, end or "expected", None))


def _capability(assessment: Assessment) -> float | None:
    if assessment.gpu is None:
        return None
    major, minor = assessment.gpu.compute_capability
    return major + minor / 10


def _terms() -> dict[str, Term]:
    number = Kind.NUMBER
    terms = {
        "verdict": Term(Kind.TEXT, lambda a: None if a.verdict == UNKNOWN else a.verdict),
        "fits_for_sure": Term(Kind.BOOL, lambda a: a.verdict == "fits"),
        "estimate.parameters": Term(number, _of_estimate(lambda e: e.parameters)),
        "estimate.trainable_parameters": Term(number, _of_estimate(lambda e: e.trainable_parameters)),
        "estimate.trainable_share": Term(number, _of_estimate(lambda e: e.trainable_parameters / max(e.parameters, 1))),
        "estimate.peak_phase": Term(Kind.TEXT, _of_estimate(lambda e: e.peak_phase)),
        "gpu.name": Term(Kind.TEXT, lambda a: a.gpu.name if a.gpu else None),
        "gpu.capacity": Term(number, lambda a: a.capacity_bytes),
        "gpu.bf16": Term(Kind.BOOL, lambda a: bf16_of(a.gpu) if a.gpu else None),
        "gpu.compute_capability": Term(number, _capability),
        "architecture.experts": Term(number, _experts),
        "architecture.vision": Term(Kind.BOOL, lambda a: "vision_config" in a.architecture.config if a.architecture else None),
        "host.capacity": Term(number, lambda a: a.settings.host_ram),
        "largest.micro_batch": Term(number, largest_micro_batch),
        "largest.sequence_length": Term(number, largest_sequence),
        "architecture.model_type": Term(Kind.TEXT, _architecture("model_type")),
        "architecture.dtype": Term(Kind.TEXT, _architecture("dtype")),
        "architecture.tied": Term(Kind.BOOL, _architecture("tied")),
        "architecture.exact": Term(Kind.BOOL, _architecture("exact")),
        PROBLEM_MESSAGE: Term(Kind.TEXT, lambda a: None),
    }
    for field in ("params", "hidden_size", "layers", "heads", "vocab_size", "max_positions"):
        terms[f"architecture.{field}"] = Term(number, _architecture(field))
    for quantity in QUANTITIES:
        for end in ("", "low", "expected", "high"):
            terms[f"estimate.{quantity}.{end}".rstrip(".")] = Term(number, _interval(quantity, end))
    for end in ("", "low", "expected", "high"):
        terms[f"estimate.host.{end}".rstrip(".")] = Term(number, _host(end))
    for component in COMPONENTS:
        terms[f"estimate.most.{component}"] = Term(number, _most(component))
        terms[f"estimate.share.{component}"] = Term(number, _share(component))
    for phase in PHASES:
        terms[f"estimate.phase.{phase}"] = Term(number, _phase(phase))
    return terms


TERMS = _terms()
