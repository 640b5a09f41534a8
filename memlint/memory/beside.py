"""What takes memory of the card beside the training step's own allocations: communicators' buffers, a colocated inference engine."""

from __future__ import annotations

from memlint.facts import TrainingRun
from memlint.gpus.gpu import Gpu
from memlint.memory.sharding import Sharding

CONNECTION = 12 << 20
"""What a channel needs to receive from one peer and to send to it (NCCL 2.26 `transport/p2p.cc`, `p2pRecvSetup`, `p2pSendSetup`: buffers of
4 MiB for Simple, 4.7 MiB for LL128 and 0.5 MiB for LL, in pages of 2 MiB; an allocation of 10 MiB and one of 2 MiB in NVIDIA/nccl#1685)."""
CHANNELS = 24
"""Rings of NVLink's twelve links an A100, there and back; trees go along the same ones (log of NVIDIA/nccl-tests#100)."""
COMMUNICATOR, OF_TWO = 688 << 20, 544 << 20
"""Each one on four A100, and on two of them (NVIDIA/nccl#964, by nvidia-smi): ring and tree there and back over 24 channels are 576 MiB
of it."""
FEW = 2
"""Channels over PCIe."""
LINKED = {(7, 0), (8, 0), (9, 0), (10, 0), (10, 3)}
"""Compute capabilities of the cards that are sold with NVLink between all of a machine (V100, A100, H100, B200, B300)."""
TO_PEERS = 32
"""Channels to each peer for sending and receiving, which an all-to-all connects all (NVIDIA/nccl#1685: 3.3 GB of eight H100)."""

VLLM_SHARE = 0.3
"""TRL's default `vllm_gpu_memory_utilization` (1.16 `trainer/grpo_config.py`)."""


def communicators(sharding: Sharding, gpu: Gpu | None = None) -> tuple[int, int, int]:
    """Bytes of NCCL's buffers outside torch's allocator: least, expected, most.

    A communicator connects its ring, one neighbour to receive from and one to send to, and its tree, which is the ring the other way;
    from 2.22 on only what is used (`NCCL_RUNTIME_CONNECT`). On Hopper buffers of NVLink SHARP come in addition. Sending to single ranks
    has connections of its own.
    """
    if sharding.world == 1 or sharding.strategy in ("dp", "device_map"):
        return 0, 0, 0
    groups, peers = _groups(sharding), _peers(sharding)
    linked = gpu is None or gpu.compute_capability in LINKED
    few = FEW * CONNECTION
    whole = OF_TWO if sharding.world == 2 else COMMUNICATOR
    ring, each, single = (CHANNELS * CONNECTION, whole, TO_PEERS * CONNECTION) if linked else (few, 2 * few, few)
    return few * (1 + peers), each * groups + single * peers, 3 * ring * (groups + 1) + single * (peers + 1)


def _groups(sharding: Sharding) -> int:
    """Process groups that a rank has a communicator of.

    Megatron-LM 0.13 `core/parallel_state.py`: all ranks for barriers and once more for the gradient norm of the distributed optimizer;
    tensor, pipeline, and both (the learning rate is logged over these); data-parallel ranks with and without the context-parallel ones;
    expert-parallel ranks alone and with the tensor ones, and those that have the same experts. DeepSpeed clones the group of all ranks
    (0.19 `utils/groups.py`, `_clone_world_group`). Elsewhere a group comes with each further mesh dimension.
    """
    degrees = (sharding.tensor, sharding.pipeline, sharding.context, sharding.expert)
    split = sum(degree > 1 for degree in degrees)
    if sharding.strategy != "megatron":
        return 1 + split + sharding.is_zero
    model = sharding.tensor * sharding.pipeline
    replicas = sharding.world // model
    experts = sharding.world // (sharding.pipeline * sharding.expert * sharding.expert_tensor) if sharding.expert > 1 else 1
    return 2 + split + (model > 1) + 2 * (replicas > 1) + (sharding.expert > 1) + (experts > 1)


def _peers(sharding: Sharding) -> int:
    """Ranks that this one sends to singly: experts' and attention's all-to-all, rings of attention, stages of a pipeline."""
    found = sharding.expert - 1 if sharding.expert > 1 else 0
    if sharding.context > 1:
        found += {"a2a": sharding.context - 1, "ring": 2 - (sharding.context == 2)}.get(sharding.exchange, 0)
    return found + (2 if sharding.pipeline > 2 else sharding.pipeline - 1)


def rollouts(run: TrainingRun, gpu: Gpu | None) -> int:
    """Bytes that a vLLM in the same process holds during the training step: its share of the card, unless it sleeps then."""
    if run.value("generation.vllm") != "colocate" or gpu is None or run.value("generation.sleep"):
        return 0
    share = float(run.value("generation.gpu_memory_utilization") or VLLM_SHARE)
    return int(share * gpu.capacity_bytes)
