"""Record how many micro-batches torch's pipeline schedules keep under way on each rank (needs torch):
`python -m tests.memory.record_schedules`. The counts are of forward passes of one model chunk whose backward is not done yet."""

from __future__ import annotations

import json
import re
from pathlib import Path

RECORD = Path(__file__).parent / "data" / "pipeline_schedules.json"
CASES = [
    (name, ranks, chunks, micro)
    for name, counts in (
        ("GPipe", (1,)), ("1F1B", (1,)), ("Interleaved1F1B", (2, 4)), ("InterleavedZeroBubble", (2, 4)), ("LoopedBFS", (2,)),
        ("ZBVZeroBubble", (2,)), ("DualPipeV", (2,)),
    )
    for chunks in counts
    for ranks in (2, 4, 8)
    for micro in (ranks, 2 * ranks, 4 * ranks)
    if name != "DualPipeV" or micro >= 2 * ranks
]  # fmt: skip


class Stage:
    """What a schedule asks of a stage to make its plan."""

    has_backward = True
    submod = device = group = None

    def __init__(self, index: int, stages: int, ranks: int, rank: int) -> None:
        self.stage_index, self.num_stages, self.group_size, self.group_rank = index, stages, ranks, rank
        self.is_first, self.is_last = index == 0, index == stages - 1


def under_way(name: str, ranks: int, chunks: int, micro: int) -> list[int]:
    """The most forward passes under way on each rank."""
    from torch.distributed.pipelining import schedules

    kind = getattr(schedules, f"Schedule{name}")
    stages = ranks * chunks
    turns = name in ("ZBVZeroBubble", "DualPipeV")
    places = [0, stages - 1] if turns else [ranks * chunk for chunk in range(chunks)]
    made = [Stage(place, stages, ranks, 0) for place in places]
    schedule = kind(made[0] if chunks == 1 else made, micro, loss_fn=lambda output, target: 0)
    order = schedule.pipeline_order or schedule._get_pipeline_order()
    return [_most(order[rank]) for rank in range(ranks)]


def _most(actions: list[object]) -> int:
    """Forward (F) begins; a whole backward (B), or the gradients of the weights (W) where they come apart from those of the inputs (I),
    end what a chunk keeps."""
    live = most = 0
    for action in actions:
        for kind in re.findall(r"\d+([FBIW])\d+", str(action)):
            live += (kind == "F") - (kind in "BW")
            most = max(most, live)
    return most


def main() -> None:
    """Write the record."""
    import torch

    rows = [
        {
            "schedule": name,
            "ranks": ranks,
            "chunks": chunks,
            "micro_batches": micro,
            "most": under_way(name, ranks, chunks, micro),
        }
        for name, ranks, chunks, micro in CASES
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    RECORD.write_text(f'{{"torch": {json.dumps(torch.__version__)}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
