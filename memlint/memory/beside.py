"""What takes memory of the card beside the training step's own allocations: communicators' buffers, a colocated inference engine."""

from __future__ import annotations

from memlint.facts import TrainingRun
from memlint.gpus.gpu import Gpu
from memlint.memory.sharding import Sharding

CHANNEL = 4 << 20
"""`NCCL_BUFFSIZE`, the buffer of one connection (NCCL 2.27 documentation, "Environment variables")."""

VLLM_SHARE = 0.3
"""TRL's default `vllm_gpu_memory_utilization` (1.16 `trainer/grpo_config.py`)."""


def communicators(sharding: Sharding) -> tuple[int, int, int]:
    """Bytes of NCCL buffers outside torch's allocator: least, expected, most.

    One communicator has a ring (one receiving connection a channel) and trees (up to three); NCCL takes up to 32 channels between cards
    with NVLink, two over PCIe. A second communicator comes with each further mesh dimension.
    """
    if sharding.world == 1 or sharding.strategy in ("dp", "device_map"):
        return 0, 0, 0
    meshes = 1 + sum(degree > 1 for degree in (sharding.tensor, sharding.pipeline, sharding.context, sharding.expert))
    return 2 * CHANNEL, 24 * 2 * CHANNEL * meshes, 32 * 4 * CHANNEL * (meshes + 1)


def rollouts(run: TrainingRun, gpu: Gpu | None) -> int:
    """Bytes that a vLLM in the same process holds during the training step: its share of the card, unless it sleeps then."""
    if run.value("generation.vllm") != "colocate" or gpu is None or run.value("generation.sleep"):
        return 0
    share = float(run.value("generation.gpu_memory_utilization") or VLLM_SHARE)
    return int(share * gpu.capacity_bytes)
