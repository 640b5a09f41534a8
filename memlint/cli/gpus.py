"""`memlint gpus`: the cards memlint knows, and what torch can really use on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from memlint.cli.arguments import Parser
from memlint.cli.options import known_gpu
from memlint.gpus import Gpu, all_gpus, find
from memlint.report.style import for_stream
from memlint.report.text import size


def run(arguments: Sequence[str]) -> int:
    """Print the table, or one card however it is written."""
    parser = Parser("gpus", "The cards memlint knows and what torch can really use on them.")
    parser.add_argument("name", nargs="?", metavar="NAME|SIZE", help="one card, as people write it")
    parser.add_argument("--format", choices=("full", "json"), default="full")
    options = parser.parse_args(arguments)
    cards: Sequence[Gpu] = sorted(all_gpus(), key=lambda gpu: (gpu.capacity_bytes, gpu.name))
    if options.name is not None:
        known_gpu(options.name)
        found = find(options.name)
        cards = [found] if found else []
    if options.format == "json":
        sys.stdout.write(json.dumps([_object(gpu) for gpu in cards], indent=2) + "\n")
    else:
        sys.stdout.write(_table(cards))
    return 0


def _object(gpu: Gpu) -> dict[str, object]:
    return {
        "name": gpu.name,
        "aliases": list(gpu.aliases),
        "memory_gb": gpu.memory_gb,
        "capacity_bytes": gpu.capacity_bytes,
        "context_bytes": gpu.context_bytes,
        "compute_capability": list(gpu.compute_capability) if gpu.compute_capability else None,
        "bf16": gpu.bf16,
        "confidence": gpu.confidence,
    }


def _table(cards: Sequence[Gpu]) -> str:
    style = for_stream(sys.stdout)
    widest = max((len(gpu.name) for gpu in cards), default=0)
    head = f"{'name':<{widest}}  {'usable':>10}  {'context':>9}  bf16  compute"
    rows = [
        f"{gpu.name:<{widest}}  {size(gpu.capacity_bytes):>10}  {size(gpu.context_bytes):>9}  "
        f"{'yes ' if gpu.bf16 else 'no  '}  {'.'.join(map(str, gpu.compute_capability or ()))}".rstrip()
        for gpu in cards
    ]
    return "\n".join([style.bold(head), *rows]) + "\n"
