"""A run with facts that have several possible values -> the decided runs that bound it."""

from __future__ import annotations

from itertools import islice, product

from memlint.facts import Fact, Status, TrainingRun, fixed
from memlint.gpus.gpu import Gpu

MOST = 16
"""Combinations looked at; beyond that the first ones bound the estimate."""


def scenarios(run: TrainingRun, gpu: Gpu | None) -> list[TrainingRun]:
    """Every combination of choices, the expected one (first choices, the card's own branch) first."""
    open_keys = []
    decided: dict[str, Fact] = {}
    for key, fact in run.facts.items():
        if fact.status is not Status.CHOICES or not fact.choices:
            continue
        if fact.decided_by == "gpu.bf16" and gpu is not None:
            decided[key] = fixed(fact.choices[0] if gpu.bf16 else fact.choices[-1], note=f"bf16 support of {gpu.name}")
        else:
            open_keys.append(key)
    run = run.with_facts(decided) if decided else run
    if not open_keys:
        return [run]
    combinations = product(*(run.facts[key].choices for key in open_keys))
    return [
        run.with_values(dict(zip(open_keys, values, strict=True)), "one of its choices") for values in islice(combinations, MOST)
    ]
