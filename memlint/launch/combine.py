"""Runs and launches put together: what the launcher decides laid over what the script says, and alternative launches joined."""

from __future__ import annotations

from collections.abc import Sequence

from memlint.dialects.derive import derive
from memlint.dialects.settle import settle
from memlint.facts import Fact, Problem, Status, TrainingRun, choices, default, unknown
from memlint.launch.command import Command
from memlint.source import Span

THROUGH_ACCELERATE = frozenset(
    {"transformers", "trl", "accelerate", "unsloth", "peft", "llama_factory", "llamafactory", "axolotl"}
)
"""Frameworks that take strategy and precision from `accelerate launch` (its environment variables)."""
SPREADING = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})
"""Values of `device_map` that lay a model over all cards; the Trainer then copies it to none (transformers 5.24 `trainer.py`,
`is_model_parallel`)."""
PLAIN = frozenset({"none", "dp", "ddp"})


def with_launch(run: TrainingRun, command: Command) -> TrainingRun:
    """The run as this launch starts it: its place is the launch, and the launcher's facts are laid over it."""
    facts = dict(run.facts)
    launcher = dict(command.launcher)
    framework = str(run.value("framework.name", ""))
    accelerated = framework in THROUGH_ACCELERATE
    problems = [*run.problems, *(problem for problem in command.problems if problem not in run.problems)]
    for key in ("parallel.gpus", "parallel.nodes", "hardware.gpu"):
        fact = launcher.pop(key, None)
        if fact is not None and not _states(facts.get(key)):
            facts[key] = fact
    facts |= _allocator(command)
    strategy = launcher.pop("parallel.strategy", None)
    distributed = {key: launcher.pop(key) for key in list(launcher) if key.startswith("parallel.")}
    if strategy is not None:
        own = facts.get("parallel.strategy")
        if strategy.value in PLAIN:
            if own is None and accelerated and facts.get("optimizer.name", strategy).status is Status.UNKNOWN:
                facts["parallel.strategy"] = unknown("the training arguments are not known, so DeepSpeed or FSDP may be on")
            elif own is None or own.status is Status.DEFAULT or (own.value in PLAIN and accelerated):
                facts["parallel.strategy"] = strategy
        elif accelerated:
            if own is not None and _states(own) and own.value not in PLAIN:
                problems += _contradiction("the distributed strategy", strategy, own)
            else:
                facts["parallel.strategy"] = strategy
                facts |= distributed
    elif "parallel.strategy" not in facts and _data_parallel(facts, command, framework):
        spread = facts.get("model.device_map")
        way = "device_map" if spread is not None and spread.value in SPREADING else "dp"
        facts["parallel.strategy"] = facts["parallel.gpus"].with_value(way).through(None, "one process, several GPUs")
    if accelerated:
        problems += _checkpointed_twice(framework, strategy, launcher, facts)
        for key, fact in launcher.items():
            own = facts.get(key)
            if own is None or not _states(own) or (key == "precision" and _from_environment(framework, own, fact)):
                facts[key] = fact
            elif key == "batch.gradient_accumulation_steps" and _states(fact):
                problems += _contradiction("the number of micro-batches a step", fact, own)
            # `mixed_precision: no` is what a launcher says that was asked for nothing: the arguments then decide.
            elif key == "precision" and _states(fact) and fact.value != "fp32" and own.value[:4] != str(fact.value)[:4]:
                problems += _contradiction("the precision", fact, own)
    files = tuple(dict.fromkeys(f for f in (command.path, *run.files, command.accelerate_config) if f))
    return run._replace(
        path=command.path,
        span=command.span,
        facts=settle(facts),
        files=files,
        problems=tuple(problems),
    )


def _allocator(command: Command) -> dict[str, Fact]:
    """Whether the launch asks for expandable segments (torch 2.13 `c10/core/AllocatorConfig.cpp`; the older name until 2.9)."""
    setting = next((command.env[name] for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") if name in command.env), None)
    if setting is None:
        return {"hardware.expandable_segments": default(False, "the launch sets no PYTORCH_ALLOC_CONF")}
    return {"hardware.expandable_segments": derive(lambda words: "expandable_segments:true" in str(words).lower(), setting)}


def _from_environment(framework: str, own: Fact, launched: Fact) -> bool:
    """Without `bf16`/`fp16` the training arguments take the launcher's autocast (transformers 5.24 `training_args.py`,
    `ACCELERATE_MIXED_PRECISION`); with them the precision is a mixed one."""
    mixed = [any(str(value).endswith("-mixed") for value in fact.values) for fact in (own, launched)]
    return framework in ("transformers", "trl", "unsloth") and own.status is not Status.UNKNOWN and mixed == [False, True]


def _states(fact: Fact | None) -> bool:
    """Whether the input itself says it."""
    return fact is not None and fact.status in (Status.FIXED, Status.CHOICES) and bool(fact.origin)


def _data_parallel(facts: dict[str, Fact], command: Command, framework: str) -> bool:
    """`CUDA_VISIBLE_DEVICES=0,1 python train.py`: the HF Trainer wraps the model in DataParallel (`trainer.py`, `n_gpu > 1`)."""
    gpus = facts.get("parallel.gpus")
    return (
        framework in ("transformers", "trl", "unsloth")
        and gpus is not None
        and gpus.known
        and isinstance(gpus.value, int)
        and gpus.value > 1
        and "parallel.gpus" in command.launcher
    )


_ONE_CHECKPOINTING = frozenset({"transformers", "trl", "unsloth"})
"""Frameworks whose Trainer refuses FSDP's activation checkpointing beside its own."""


def _checkpointed_twice(
    framework: str, strategy: Fact | None, launcher: dict[str, Fact], facts: dict[str, Fact]
) -> list[Problem]:
    by_fsdp, own = launcher.get("checkpointing.enabled"), facts.get("checkpointing.enabled")
    sharded = strategy is not None and str(strategy.value).startswith("fsdp")
    if not sharded or framework not in _ONE_CHECKPOINTING or by_fsdp is None or own is None:
        return []
    ours = next((o.span for o in by_fsdp.origin if o.span is not None), None)
    if ours is None or not (by_fsdp.value is True and own.value is True):
        return []
    theirs = next((o.span for o in own.origin if o.span is not None), None)
    where = "in the training arguments" if theirs is not None else f"by default ({own.origin[0].note})" if own.origin else "too"
    message = f"activation checkpointing is on in the FSDP configuration and {where}: the Trainer refuses both together"
    return [Problem("checkpointing-twice", message, ours, (theirs,) if theirs else ())]


def _contradiction(what: str, launcher: Fact, script: Fact) -> list[Problem]:
    ours = next((o.span for o in launcher.origin if o.span is not None), None)
    theirs = next((o.span for o in script.origin if o.span is not None), None)
    if ours is None or theirs is None or launcher.value == script.value:
        return []
    message = f"{what} is {launcher.value} in the launch configuration and {script.value} in the training arguments"
    return [Problem("contradiction", message, ours, (theirs,))]


# Alternatives ------------------------------------------------------------------------------------------------------------


def merged(alternatives: Sequence[Sequence[TrainingRun]]) -> tuple[TrainingRun, ...]:
    """The runs of one launch line that a script may reach in several ways: where they differ, a fact is a set of choices."""
    different: list[Sequence[TrainingRun]] = []
    for runs in alternatives:
        if runs and not any(_alike(runs, other) for other in different):
            different.append(runs)
    if not different:
        return ()
    if len(different) == 1:
        return tuple(different[0])
    length = max(len(runs) for runs in different)
    return tuple(_join([runs[index] for runs in different if index < len(runs)]) for index in range(length))


def _alike(a: Sequence[TrainingRun], b: Sequence[TrainingRun]) -> bool:
    return len(a) == len(b) and all(x.facts == y.facts for x, y in zip(a, b, strict=True))


def _join(runs: Sequence[TrainingRun]) -> TrainingRun:
    first = runs[0]
    facts: dict[str, Fact] = {}
    for key in dict.fromkeys(key for run in runs for key in run.facts):
        facts[key] = join([run.facts.get(key) for run in runs])
    return first._replace(
        facts=facts,
        files=tuple(dict.fromkeys(file for run in runs for file in run.files)),
        sites=tuple(dict.fromkeys(site for run in runs for site in run.sites)),
        problems=tuple(dict.fromkeys(problem for run in runs for problem in run.problems)),
    )


def join(facts: Sequence[Fact | None]) -> Fact:
    """One fact for several ways to the same line."""
    known = [fact for fact in facts if fact is not None]
    if all(fact is not None and fact.values == known[0].values and fact.known == known[0].known for fact in facts):
        weakest = next((fact for fact in known if fact.status is Status.DEFAULT), known[0])
        return weakest if known[0].values else known[0]
    span = _place(known[0])
    for fact in facts:
        if fact is None:
            return unknown("only some of the ways to this launch say it", span)
        if fact.status is Status.UNKNOWN:
            return fact
    found = choices((value for fact in known for value in fact.values), span)
    origins = tuple(dict.fromkeys(origin for fact in known for origin in fact.origin[:1]))
    return found._replace(origin=origins or found.origin)


def _place(fact: Fact) -> Span | None:
    return next((origin.span for origin in fact.origin if origin.span is not None), None)
