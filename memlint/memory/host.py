"""Host memory of one node: what is offloaded to it, what loading takes, pinned copies. The data loader is not included.

Loading (transformers 5.24 `modeling_utils.py`, accelerate 1.15 `utils/fsdp_utils.py` and `big_modeling.py`): safetensors files are mapped
and copied tensor by tensor to a card, so a single process needs about one shard of a checkpoint; under FSDP every rank first builds the
whole model on the CPU unless only the first one loads (`cpu_ram_efficient_loading`); under ZeRO below 3, and under 3 without
`zero3_init`, every rank does too. What bitsandbytes quantises goes to the card tensor by tensor in every rank
(`quantizers/quantizer_bnb_4bit.py`, `update_device_map`), but under efficient loading.
"""

from __future__ import annotations

from memlint.facts import TrainingRun
from memlint.memory.optimizer import OFF_DEVICE
from memlint.memory.result import Interval
from memlint.memory.setup import Setup

PROCESS = (2 << 30, 3 << 30, 6 << 30)
"""One Python process with torch, CUDA and the frameworks loaded (resident size; the bounds are wide on purpose)."""

SHARD = 5_000_000_000
"""`save_pretrained` splits checkpoints at this size (transformers 4, `max_shard_size`; 50 GB in 5.0)."""

PINNED = 2
"""Pinned allocations are rounded up to a power of two (torch 2.13 `aten/src/ATen/core/CachingHostAllocator.h`): at most twice the size."""


SWAP_BUFFERS = 4
PARAMETER_BUFFERS, IN_HOST = 5 * 100_000_000, 1_000_000_000
"""NVMe: the optimizer's buffers; elements of the parameters' buffers, and of parameters that stay in host memory (DeepSpeed 0.19
`runtime/zero/offload_config.py`, `buffer_count`, `buffer_size`, `max_in_cpu`)."""


def host_bytes(run: TrainingRun, setup: Setup, parameters: int, trainable: int) -> Interval:
    """Bytes of host memory on one node."""
    sharding = setup.sharding
    ranks = max(1, int(run.value("parallel.gpus", 1) or 1)) if sharding.strategy != "device_map" else 1
    low, expected, high = (ranks * size for size in PROCESS)
    share = ranks / sharding.world if sharding.shards_states else float(ranks)
    kept = 0.0
    if run.value("parallel.offload_params") == "nvme":
        kept += ranks * (PARAMETER_BUFFERS + min(IN_HOST, sharding.share(parameters))) * setup.weight_itemsize
    elif sharding.offload_params:
        kept += parameters * setup.weight_itemsize * share
    if run.value("parallel.offload_optimizer") == "nvme":
        # Pinned buffers of one sub-group each pass the float32 weights, moments and gradients; the 16-bit gradients stay.
        buffers = int(run.value("parallel.swap_buffers") or SWAP_BUFFERS)
        kept += (
            ranks * buffers * min(sharding.sub_group, sharding.share(trainable)) * 4 + trainable * setup.weight_itemsize * share
        )
    elif sharding.offload_optimizer or setup.optimizer in OFF_DEVICE:
        # Master weights, two moments and the gradients that the CPU's optimizer reads, each in float32; FSDP: in the shard's own dtype.
        size = 4 if sharding.is_zero or setup.master_weights else setup.stored_itemsize
        kept += trainable * 4 * size * share * (sharding.offloaded_states if sharding.offload_optimizer else 1)
    loading = _loading(run, setup, parameters, ranks)
    expected += int(max(kept, loading[1]))
    low += int(max(kept, loading[0]))
    high += int(max(kept * PINNED, loading[2]))
    return Interval(low, expected, high)


def _loading(run: TrainingRun, setup: Setup, parameters: int, ranks: int) -> tuple[int, int, int]:
    """What building the model takes at its peak, over all ranks of the node."""
    sharding = setup.sharding
    model = parameters * (4 if setup.stored_itemsize == 4 else setup.weight_itemsize)
    shard = min(model, SHARD)
    everywhere = model * ranks
    on_cards = run.value("quantization.method") in ("bnb_4bit", "bnb_8bit")
    if on_cards and run.value("parallel.cpu_ram_efficient_loading") is not True:
        return shard, shard * ranks, shard * ranks
    if sharding.strategy == "fsdp1" or (sharding.strategy == "fsdp2" and setup.stack.uses_accelerate):
        efficient = run.value("parallel.cpu_ram_efficient_loading")
        if efficient is None:
            return model, everywhere, everywhere + shard
        return (model, model, model + shard) if efficient else (everywhere, everywhere, everywhere + shard)
    if sharding.strategy == "zero3":
        initialised = run.value("parallel.zero3_init")
        if initialised is False:
            return everywhere, everywhere, everywhere + shard
        return shard, shard * ranks, model + shard * ranks
    if sharding.is_zero:
        return shard, everywhere, everywhere + shard
    return shard, shard, model * ranks
