"""Pipeline parallelism: how many micro-batches each rank has under way, and which rank needs the most.

A rank holds one chunk of consecutive layers, or several that are spread over the depth (interleaved schedules). The counts are those of
torch 2.13's plans (`distributed/pipelining/schedules.py`; recorded in `tests/memory/data/pipeline_schedules.json`); Megatron-LM 0.15
`core/pipeline_parallel/schedules.py` warms up alike.
"""

from __future__ import annotations

from memlint.facts import TrainingRun
from memlint.memory.sharding import Sharding
from memlint.typed import NamedTuple

FILLS = ("gpipe", "loopedbfs")
"""Schedules that run every micro-batch forward before the first one backward."""
ZERO_BUBBLE = ("interleavedzerobubble", "zbvzerobubble")


class Stage(NamedTuple):
    """The part of a pipeline that one rank holds."""

    name: str
    """only, first or last: where the embedding and the head are."""
    under_way: int
    """Micro-batches whose activations it holds at most, the one at work included."""
    fills: bool
    """All are forward before the first one is backward: the last stage holds all their losses."""
    layers: int


def stages(run: TrainingRun, sharding: Sharding, layers: int) -> tuple[Stage, ...]:
    """The ranks that can be the worst: the first, which starts earliest and has the embedding, and the last, which has the head. Chunks
    count as their share of the rank's layers."""
    ranks = sharding.pipeline
    if ranks == 1:
        return (Stage("only", 1, False, layers),)
    chunks = max(1, int(run.value("parallel.pipeline_chunks") or 1))
    schedule = str(run.value("parallel.pipeline_schedule") or "1f1b").lower()
    if schedule.startswith("interleaved") or schedule in (*FILLS[1:], *ZERO_BUBBLE, "dualpipev"):
        chunks = max(2, chunks)
    micro = int(run.value("parallel.pipeline_micro_batches") or run.value("batch.gradient_accumulation_steps") or 1)
    return tuple(
        Stage(name, -(-under_way(schedule, ranks, chunks, rank, micro) // chunks), schedule in FILLS, own)
        for name, rank, own in zip(("first", "last"), (0, ranks - 1), _depths(run, ranks, layers), strict=True)
    )


def _depths(run: TrainingRun, ranks: int, layers: int) -> tuple[int, int]:
    """Layers of the first and of the last rank: what is said of one of them leaves an equal share of the rest to each other (Megatron-LM
    0.13 `core/transformer/transformer_block.py`, `get_num_layers_to_build`)."""
    first, last = (int(run.value(f"parallel.pipeline_{end}_layers") or 0) for end in ("first", "last"))
    others = ranks - bool(first) - bool(last)
    equal = -(-(layers - first - last) // max(1, others))
    return max(1, first or equal), max(1, last or equal)


def under_way(schedule: str, ranks: int, chunks: int, rank: int, micro: int) -> int:
    """The most forward passes of one chunk whose backward is not done."""
    if schedule in FILLS:
        return chunks * micro
    if schedule in ZERO_BUBBLE:
        return chunks * min(micro, ranks)
    if schedule == "dualpipev":
        return min(chunks * micro, chunks * ranks + 1)
    if chunks == 1:
        return min(micro, ranks - rank)
    return min(chunks * micro, (chunks - 1) * ranks + 2 * (ranks - 1 - rank) + 1)


def comparison(sharding: Sharding, worst: Stage, needed: int, others: list[int]) -> str:
    """Which rank is the worst, and why."""
    holds = "the embedding" if worst.name == "first" else "the head and the loss"
    what = f"{worst.under_way} micro-batch{'es' if worst.under_way > 1 else ''} under way and {holds}"
    rest = ", ".join(f"{other / 2**30:.1f} GiB" for other in others)
    end = "last" if worst.name == "first" else "first"
    return (
        f"of {sharding.pipeline} pipeline ranks the {worst.name} needs the most: {needed / 2**30:.1f} GiB allocated with {what}, "
        f"the {end} one {rest}"
    )
