"""How long one estimate takes, in time of the processor, and a search over a hundred variants of a run.

    python -m benchmarks.estimates [--rounds N] [--all]

The fastest of several rounds counts, after a first estimate has loaded what is needed and under the collector's threshold of the
command. Models of 32 and 80 layers have limits; with `--all`, larger setups are timed, too. Exit code 1 above a limit.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from memlint.assess import assess, estimate_with
from memlint.facts import TrainingRun, fixed
from memlint.gpus import find
from memlint.memory.estimate import estimate
from memlint.models import lookup
from memlint.source import Span

SMALL, LARGE = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"
LIMITS = {SMALL: 25.0, LARGE: 40.0}
"""Milliseconds for 32 and 80 layers."""
SEARCH_LIMIT = 2000.0

QLORA = {
    "model.dtype": "bfloat16",
    "precision": "bf16-mixed",
    "batch.micro_batch_size": 2,
    "batch.sequence_length": 2048,
    "optimizer.name": "paged_adamw_8bit",
    "checkpointing.enabled": True,
    "loss.logits": "full",
    "objective": "causal_lm",
    "adapter.method": "lora",
    "adapter.r": 16,
    "adapter.target_modules": "all-linear",
    "quantization.method": "bnb_4bit",
    "quantization.double_quant": True,
    "framework.name": "trl",
}
LORA = {**QLORA, "quantization.method": "none"}
FULL = {**LORA, "adapter.method": "none", "optimizer.name": "adamw_torch"}
TUNINGS: dict[str, dict[str, Any]] = {
    "full": FULL,
    "LoRA": LORA,
    "QLoRA": QLORA,
    "LoRA, no checkpointing": {**LORA, "checkpointing.enabled": False},
}
LARGER: dict[str, tuple[str, dict[str, Any]]] = {
    "8B full, a card that is nearly too small": (SMALL, {**FULL, "checkpointing.enabled": False}),
    "8B QLoRA, FSDP1 on 8 GPUs": (SMALL, {**QLORA, "parallel.strategy": "fsdp1", "parallel.gpus": 8}),
    "8B DPO with a reference": (SMALL, {**FULL, "objective": "dpo", "reference_model": "copy"}),
    "70B full, FSDP2 on 8 GPUs": (LARGE, {**FULL, "parallel.strategy": "fsdp2", "parallel.gpus": 8}),
    "70B full, ZeRO-3 on 8 GPUs": (LARGE, {**FULL, "parallel.strategy": "zero3", "parallel.gpus": 8}),
    "Qwen3-30B-A3B LoRA": ("Qwen/Qwen3-30B-A3B", LORA),
    "Qwen3-30B-A3B QLoRA, two versions": ("Qwen/Qwen3-30B-A3B", QLORA),
    "Gemma-3-27B LoRA with images": ("google/gemma-3-27b-it", {**LORA, "batch.images": 1}),
}
VARIANTS: dict[str, tuple[Any, ...]] = {
    "batch.micro_batch_size": (1, 2, 4, 8, 16),
    "batch.sequence_length": (512, 1024, 2048, 4096, 8192),
    "loss.logits": ("full", "fused"),
    "optimizer.name": ("adamw_torch", "adamw_bnb_8bit"),
}


def run_of(model: str, facts: Mapping[str, Any]) -> TrainingRun:
    """A run of this model."""
    known = {"model.id": model, **facts}
    return TrainingRun("benchmark", Span("benchmark", 1), {key: fixed(value) for key, value in known.items()})


def fastest(work: Callable[[], object], rounds: int) -> float:
    """Milliseconds of the processor."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times) * 1000


def one(model: str, facts: Mapping[str, Any], rounds: int) -> float:
    """Of one estimate."""
    run, architecture, gpu = run_of(model, facts), lookup(model).architecture, find("A100-80GB")
    assert architecture is not None
    known = architecture
    estimate(run, known, gpu)
    return fastest(lambda: estimate(run, known, gpu), rounds)


def search(facts: Mapping[str, Any], rounds: int) -> float:
    """Of a hundred variants on a card of 24 GB, each judged anew as a search for a fix does."""
    changes = [dict(zip(VARIANTS, values, strict=True)) for values in product(*VARIANTS.values())]

    def every() -> None:
        assessment = assess(run_of(SMALL, facts), find("RTX 4090"))
        for change in changes:
            estimate_with(assessment, change)

    return fastest(every, rounds)


def main() -> int:
    """Time and print; 1 above a limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--all", action="store_true", help="larger setups, too")
    options = parser.parse_args()
    gc.set_threshold(100_000)
    above = False
    for (model, limit), (name, facts) in product(LIMITS.items(), TUNINGS.items()):
        found = one(model, facts, options.rounds)
        above |= found > limit
        print(f"{model.rpartition('-')[2] + ' ' + name:<44} {found:7.1f} ms of {limit:g}")
    for name, facts in {"QLoRA": QLORA, "full": FULL}.items():
        found = search(facts, max(1, options.rounds // 3))
        above |= found > SEARCH_LIMIT
        print(f"{'100 variants of 8B ' + name:<44} {found:7.0f} ms of {SEARCH_LIMIT:g}")
    for name, (model, facts) in LARGER.items() if options.all else ():
        print(f"{name:<44} {one(model, facts, options.rounds):7.1f} ms")
    return int(above)


if __name__ == "__main__":
    sys.exit(main())
