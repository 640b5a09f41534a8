"""The last steps of every framework: what the process setup adds, and the finished `TrainingRun`."""

from __future__ import annotations

from collections.abc import Iterable

from memlint.dialects.context import Context
from memlint.dialects.settle import settle
from memlint.facts import Fact, Problem, Site, Status, TrainingRun, default, unknown
from memlint.frameworks.state import Collected, Found
from memlint.read.pyeval.joins import merge
from memlint.read.pyeval.machine import Machine
from memlint.source import Span


def join_facts(options: list[dict[str, Fact]], decided_by: str = "") -> dict[str, Fact]:
    """The facts of several possibilities, key by key; a key that one leaves out is kept from the others."""
    if len(options) == 1:
        return dict(options[0])
    keys = dict.fromkeys(key for option in options for key in option)
    return {
        key: merge([o[key] for o in options if key in o], decided_by if sum(key in o for o in options) == 2 else "")
        for key in keys
    }


def finish(
    machine: Machine,
    collected: Collected,
    facts: dict[str, Fact],
    span: Span,
    sites: Iterable[Site],
    problems: Iterable[Problem],
    recognised_by: str,
    context: Context,
) -> TrainingRun:
    """The run, consequences settled. What a launcher decides is laid over it later (`memlint.launch`)."""
    facts = dict(facts)
    for key, fact in collected.process_facts.items():
        if key not in facts or facts[key].status is Status.DEFAULT:
            facts[key] = fact
    facts.setdefault("adapter.method", default("none", "no adapter is added"))
    facts.setdefault("quantization.method", default("none", "no quantization is asked for"))
    pinned = context.versions.fact()
    if pinned is not None:
        facts.setdefault("framework.versions", pinned)
    facts = settle({key: _stripped(fact) for key, fact in facts.items()})
    dialect = "hf_arguments"
    return TrainingRun(
        path=collected.path,
        span=span,
        facts=facts,
        dialect=dialect,
        recognised_by=recognised_by,
        sites=tuple(dict.fromkeys([*sites, *context.sites])),
        problems=tuple(dict.fromkeys([*problems, *collected.habits(), *collected.problems, *context.problems])),
        files=tuple(dict.fromkeys([collected.path, *machine.read_paths, *context.files])),
    )


def _stripped(fact: Fact) -> Fact:
    """A canonical fact carries no abstract value and only the deciders that rules know."""
    if fact.status is Status.UNKNOWN and fact.value is not None:
        fact = unknown(fact.reason, fact.origin[0].span if fact.origin else None)
    if fact.decided_by and not fact.decided_by.startswith("gpu."):
        fact = fact._replace(decided_by="")
    return fact


def distinct_runs(found: list[Found], launched: bool = False) -> list[TrainingRun]:
    """The runs in source order: the certain ones, else those that an option switches on, unless a launch has given all of them.

    The same call reached twice in the same way (a loop over settings) is one run whose facts are choices.
    """
    certain = [f for f in found if not f.shadow] or ([] if launched else found)
    groups: dict[tuple[Span, tuple[Span, ...]], list[Found]] = {}
    for one in certain:
        groups.setdefault((one.run.span, one.sites), []).append(one)
    runs: dict[object, TrainingRun] = {}
    for group in groups.values():
        facts = join_facts([dict(one.run.facts) for one in group])
        values = repr([(key, fact.value, fact.choices) for key, fact in facts.items()])
        job = group[0].trainer if group[0].trainer is not None else group[0].run.span
        runs.setdefault((id(job) if group[0].trainer is not None else job, values), group[0].run._replace(facts=facts))
    return list(runs.values())
