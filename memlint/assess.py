"""A run against a card: its model looked up, its memory estimated, and the verdict."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from memlint.comments import ORIGIN
from memlint.config import Settings
from memlint.facts import Fact, TrainingRun, fixed
from memlint.gpus import Gpu, all_gpus, find, sizes
from memlint.memory import CannotEstimate, Estimate, Interval, NoPage
from memlint.models import Architecture, Lookup, lookup
from memlint.models.lookup import is_hub_id
from memlint.source import Kind, kind_of
from memlint.typed import Any, NamedTuple

FITS, TIGHT, DOES_NOT_FIT, UNKNOWN = "fits", "tight", "does_not_fit", "unknown"

MAX_MICRO_BATCH = 4096
MAX_SEQUENCE = 2**20
"""Where the searches for the largest that fits stop: beyond any real setting."""


class Assessment(NamedTuple):
    """What is known about one run on one target card; the rules and reports look at nothing else."""

    run: TrainingRun
    lookup: Lookup | None = None
    estimate: Estimate | None = None
    why_not: str = ""
    """Why there is no estimate or no verdict, and how to supply what is missing."""
    gpu: Gpu | None = None
    verdict: str = UNKNOWN
    settings: Settings = Settings()
    tried: dict[str, Estimate | None] | None = None
    """Estimates of the run with other values, by these: rules, reports and searches for what fits ask for the same ones."""

    @property
    def architecture(self) -> Architecture | None:
        """The model's shape, when the lookup found one."""
        return self.lookup.architecture if self.lookup else None

    @property
    def capacity_bytes(self) -> int | None:
        """What torch can use on the target card, context included."""
        return self.gpu.capacity_bytes if self.gpu else None

    @property
    def is_fragment(self) -> bool:
        """True for a launcher's or engine's configuration alone: no job, only a part that many jobs may share."""
        if kind_of(self.run.path) not in (Kind.YAML, Kind.JSON):
            return False
        from memlint.dialects import by_name  # loaded already: it read the run

        try:
            return bool(getattr(by_name(self.run.dialect), "FRAGMENT", False))
        except LookupError:
            return False

    @property
    def sharding_guessed(self) -> bool:
        """True when whole copies are assumed of a job on several GPUs, or one GPU, only because nothing says how it is sharded."""
        from memlint.memory.scenarios import open_ranks

        gpus = self.run.value("parallel.gpus")
        several = isinstance(gpus, int) and gpus > 1
        return open_ranks(self.run) or (several and self.run.value("parallel.strategy") is None)

    @property
    def needed(self) -> Interval | None:
        """What a card must have for the run: required memory, the CUDA context (the target card's, where there is one), and what else is on
        it (`Estimate.beside`)."""
        if self.estimate is None:
            return None
        context = int(self.estimate.components.get("context", 0))
        required, beside = self.estimate.required, self.estimate.beside
        if self.gpu is None:
            return Interval(*(value + context for value in required))
        low, high = self.gpu.context_low + beside.low, self.gpu.context_high + beside.high
        return Interval(required.low + low, required.expected + context, required.high + high)


class Verdict(NamedTuple):
    """Whether an estimate fits one card."""

    gpu: Gpu
    verdict: str


def assess(run: TrainingRun, gpu: Gpu | None = None, settings: Settings | None = None) -> Assessment:
    """Look up the model, estimate the run and judge it on `gpu` (see `target`).

    Values set in `settings` (or `--set`) and choices that the card decides are fixed first. Never raises: a run that
    cannot be estimated says why in `why_not`.
    """
    settings = settings or Settings()
    run = _decided_by(gpu, overridden(run, settings))
    found = _look_up(run, settings)
    if found.architecture is None:
        return Assessment(run, found, None, _unknown_model(run, found), gpu, UNKNOWN, settings)
    try:
        estimated = _estimate(run, found.architecture, gpu)
    except NoPage as error:
        return Assessment(run, found, None, f"{error}{_at_least(run, found.architecture, gpu)}", gpu, UNKNOWN, settings)
    except CannotEstimate as error:
        least = _least(run, found.architecture, gpu)
        if least is not None and judge(least, gpu) == DOES_NOT_FIT:
            return Assessment(run, found, least, "", gpu, DOES_NOT_FIT, settings)
        return Assessment(run, found, None, str(error), gpu, UNKNOWN, settings)
    verdict = judge(estimated, gpu)
    undecided = ""
    if verdict == DOES_NOT_FIT:
        estimated = _down_to_the_shortest(run, found.architecture, gpu, estimated)
        undecided = _size_decides(run, gpu, settings, estimated) if judge(estimated, gpu) == DOES_NOT_FIT else SHORTER
    elif verdict == TIGHT:
        undecided = _size_decides(run, gpu, settings, estimated)
        undecided = undecided or _undecided(run, found.architecture)
    return Assessment(run, found, estimated, undecided, gpu, UNKNOWN if undecided else verdict, settings, {})


def target(run: TrainingRun, settings: Settings) -> Gpu | None:
    """The card a run is judged on: the one that the settings name, else the one the input names.

    None when nothing names a card, or names one that memlint does not know.
    """
    said = run.value("hardware.gpu")
    named = said if said and not _overrides(settings, "gpu", run, "hardware.gpu") else settings.gpu or said
    return find(str(named)) if named else None


def judge(estimated: Estimate | None, gpu: Gpu | None) -> str:
    """The verdict: required memory, the context and what else is on the card against its usable capacity.

    `does_not_fit` only if the low ends exceed it, `fits` only if the high ends do not, `tight` between.
    """
    if estimated is None or gpu is None:
        return UNKNOWN
    if estimated.required.low + gpu.context_low + estimated.beside.low > gpu.capacity_bytes:
        return DOES_NOT_FIT
    return FITS if estimated.required.high + gpu.context_high + estimated.beside.high <= gpu.capacity_bytes else TIGHT


def bf16_of(gpu: Gpu) -> bool | None:
    """Whether the card computes bfloat16; None for a target that is only a size ("16GB"): such cards come with and without."""
    return None if gpu.name.endswith(" GB card") else gpu.bf16


def verdicts_for(estimated: Estimate, gpus: Iterable[Gpu]) -> tuple[Verdict, ...]:
    """The verdict on each card, in the order given."""
    return tuple(Verdict(gpu, judge(estimated, gpu)) for gpu in gpus)


def smallest_card(estimated: Estimate, *, bf16: bool = False) -> Gpu | None:
    """The card with the least memory on which the run fits for sure (and computes bfloat16); None when none does."""
    fitting = [gpu for gpu in all_gpus() if judge(estimated, gpu) == FITS and (gpu.bf16 or not bf16)]
    return min(fitting, key=lambda gpu: (gpu.capacity_bytes, gpu.name), default=None)


def largest_micro_batch(assessment: Assessment) -> int | None:
    """The largest micro-batch that fits the target card for sure, everything else unchanged.

    0 when not even one sample fits; None without a target, an estimate or a known micro-batch.
    """
    return _largest(assessment, "batch.micro_batch_size", 1, MAX_MICRO_BATCH)


def largest_sequence(assessment: Assessment) -> int | None:
    """The longest sequence, in multiples of 64 tokens, that fits the target card for sure; as `largest_micro_batch`."""
    return _largest(assessment, "batch.sequence_length", 64, MAX_SEQUENCE)


def verdict_with(assessment: Assessment, changes: Mapping[str, Any]) -> str:
    """The verdict on the target card if these facts had these values."""
    if assessment.gpu is None:
        return UNKNOWN
    return judge(estimate_with(assessment, changes), assessment.gpu)


def estimate_with(assessment: Assessment, changes: Mapping[str, Any]) -> Estimate | None:
    """The estimate if these facts had these values; None where there is none."""
    tried = {} if assessment.tried is None else assessment.tried
    key = repr(sorted(changes.items(), key=lambda change: change[0]))
    if key not in tried and assessment.architecture is not None:
        try:
            run = assessment.run.with_values(changes, "proposed")
            tried[key] = _estimate(run, assessment.architecture, assessment.gpu)
        except CannotEstimate:
            tried[key] = None
    return tried.get(key)


def saves(assessment: Assessment, changes: Mapping[str, Any]) -> bool:
    """Whether these changes lower what a run needs, without a worse verdict; False for what cannot be estimated."""
    before, after = assessment.estimate, estimate_with(assessment, changes)
    if before is None or after is None or after.required.expected >= before.required.expected:
        return False
    order = (DOES_NOT_FIT, TIGHT, FITS, UNKNOWN)
    return order.index(judge(after, assessment.gpu)) >= order.index(assessment.verdict)


SHORTER = (
    "samples of batch.sequence_length do not fit, but it is only their cap: say how long the longest are with "
    "`--set batch.sequence_length=N`"
)


def _down_to_the_shortest(run: TrainingRun, architecture: Architecture, gpu: Gpu | None, estimated: Estimate) -> Estimate:
    """The estimate with the low ends of samples as short as they can be, where the run only says at what length they are cut."""
    from memlint.memory.scenarios import length_is_cap

    if not length_is_cap(run):
        return estimated
    shortest = {"batch.sequence_length": run.value("batch.completion_length") or 1, "batch.sequence_length_is_cap": False}
    try:
        least = _estimate(run.with_values(shortest, "the shortest"), architecture, gpu)
    except CannotEstimate:
        return estimated
    names = ("allocated", "required", "reserved", "device")
    lows = {name: min(getattr(estimated, name).low, getattr(least, name).low) for name in names}
    sentence = "samples are neither packed nor padded to batch.sequence_length: the low end is for the shortest that there can be"
    return estimated._replace(
        **{name: getattr(estimated, name)._replace(low=low) for name, low in lows.items()},
        assumptions=(sentence, *estimated.assumptions),
    )


def _size_decides(run: TrainingRun, gpu: Gpu | None, settings: Settings, estimated: Estimate) -> str:
    """A card that a file names without its size (Colab's metadata, `--gres=gpu:a100:8`) may be a larger one of that name."""
    said = run.value("hardware.gpu")
    person = settings.gpu is not None or any(origin.note == ORIGIN for origin in run.fact("hardware.gpu").origin)
    if gpu is None or person or not isinstance(said, str):
        return ""
    largest = max(sizes(said), key=lambda card: card.capacity_bytes, default=gpu)
    if largest.memory_gb == gpu.memory_gb or judge(estimated, largest) == DOES_NOT_FIT:
        return ""
    return f"{said} has {gpu.memory_gb:g} or {largest.memory_gb:g} GB, and that decides: say which with --gpu"


def _undecided(run: TrainingRun, architecture: Architecture) -> str:
    """The open fact on which it hangs whether a run fits: at one end of what is possible it does, at the other it does not."""
    from memlint.memory.scenarios import open_length, open_ranks

    if open_ranks(run):
        return "how the job is sharded over how many GPUs decides: say it with --gpus N and `--set parallel.strategy=...`"
    if open_length(run, architecture):
        return "batch.sequence_length is not known, and it decides: set it with `--set batch.sequence_length=N`"
    return ""


def _estimate(run: TrainingRun, architecture: Architecture, gpu: Gpu | None) -> Estimate:
    """The estimator is loaded for the first run: most files that a hook is given hold none."""
    from memlint.memory.estimate import estimate

    return estimate(run, architecture, gpu)


def _least(run: TrainingRun, architecture: Architecture, gpu: Gpu | None) -> Estimate | None:
    """The estimate with the smallest batch of the shortest samples, where the run does not say how large they are: a card that is too
    small for that is too small for any. None when something else is missing, or no card is named."""
    shortest = {"batch.micro_batch_size": 1, "batch.sequence_length": run.value("batch.completion_length") or 1}
    open_ = {key: value for key, value in shortest.items() if not run.value(key)}
    if gpu is None or not open_:
        return None
    try:
        estimated = _estimate(run.with_values(open_, "the least"), architecture, gpu)
    except CannotEstimate:
        return None
    taken = " and ".join(f"{key} {value}" for key, value in open_.items())
    return estimated._replace(assumptions=(f"the least there is: {taken}, which nothing states", *estimated.assumptions))


def _at_least(run: TrainingRun, architecture: Architecture, gpu: Gpu | None) -> str:
    """What can be said about the memory of a model that no page describes: what its parameters take."""
    from memlint.memory.floor import floor

    try:
        least = floor(run, architecture, gpu)
    except CannotEstimate:
        least = None
    if least is None:
        return ""
    too_much = gpu is not None and least.total + gpu.context_low > gpu.capacity_bytes
    return f"; {least}{f': more than {gpu.name} has' if gpu and too_much else ''}"


def _largest(assessment: Assessment, key: str, step: int, most: int) -> int | None:
    """Doubling, then bisection; memory grows with the value, so the first that does not fit ends the search."""
    value = assessment.run.value(key)
    if assessment.gpu is None or assessment.estimate is None or not isinstance(value, int) or value < 1:
        return None
    fits = 0
    fails = step
    while fails <= most and verdict_with(assessment, {key: fails}) == FITS:
        fits, fails = fails, fails * 2
    while fails - fits > step:
        middle = (fits + fails) // (2 * step) * step
        if verdict_with(assessment, {key: middle}) == FITS:
            fits = middle
        else:
            fails = middle
    if fits < value < fits + step and assessment.verdict == FITS:
        return value  # the run's own, which is no multiple of the step
    return fits


def overridden(run: TrainingRun, settings: Settings) -> TrainingRun:
    """The run with the values that a person set; `gpus` counts as one of them. A comment in the file is above the configuration."""
    values: dict[str, Any] = dict(settings.set)
    if settings.gpus is not None:
        values["parallel.gpus"] = settings.gpus
    if values.get("batch.sequence_length") and "batch.sequence_length_is_cap" not in values:
        values["batch.sequence_length_is_cap"] = False  # a person who says how long samples are knows it
    facts = {
        key: fixed(value, note=settings.origin_of(key)) for key, value in values.items() if _overrides(settings, key, run, key)
    }
    return run.with_facts(facts) if facts else run


def _overrides(settings: Settings, name: str, run: TrainingRun, key: str) -> bool:
    """Whether a setting stands above the run's own fact: the command line always does, a configuration below comments."""
    commented = any(origin.note == ORIGIN for origin in run.fact(key).origin)
    return not commented or settings.origin_of(name).startswith("--")


def _decided_by(gpu: Gpu | None, run: TrainingRun) -> TrainingRun:
    """The run with the choices settled that hang on the card's bf16 support."""
    supported = bf16_of(gpu) if gpu else None
    if gpu is None or supported is None:
        return run
    settled: dict[str, Fact] = {}
    for key, fact in run.facts.items():
        if fact.decided_by == "gpu.bf16" and len(fact.choices) == 2:
            value = fact.choices[0] if supported else fact.choices[1]
            settled[key] = fixed(value)._replace(origin=fact.origin).through(None, f"{gpu.name} decides")
    return run.with_facts(settled) if settled else run


def _look_up(run: TrainingRun, settings: Settings) -> Lookup:
    """The model's shape by its inline config or its id; ids that are paths are relative to the run's file."""
    config = run.value("model.config")
    name = run.value("model.id")
    found = lookup(
        name if isinstance(name, str) else None,
        config=config if isinstance(config, Mapping) else None,
        base=os.path.dirname(run.path),
        overrides=settings.models,
    )
    if not settings.hf:
        return found
    from memlint.models import hf  # the extra, only where it is asked for

    return hf.asked(found)


def _unknown_model(run: TrainingRun, found: Lookup) -> str:
    name = run.value("model.id")
    if name is None:
        reason = run.fact("model.id").reason
        return f"the model is not known: {reason}; say it with --set model.id=... or [tool.memlint.set]"
    close = f" (did you mean {', '.join(found.suggestions[:3])}?)" if found.suggestions else ""
    fetch = f"`memlint models add {name}` fetches its config.json, or " if is_hub_id(str(name)) else ""
    advice = f"{fetch}point [tool.memlint.models] at one or at an id of the same shape"
    return f"model {name!r} is not in the catalogue{close}; {advice}"
