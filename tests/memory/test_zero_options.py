"""ZeRO's less usual settings, by hand from DeepSpeed's sources: ZeRO++, MiCS, NVMe, sizes of zero, a model that was not built sharded."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.result import Estimate
from memlint.memory.sharding import sharding_of
from memlint.source import Span
from tests.memory.test_sharding import FULL, LAYER, LLAMA_2_7B, estimated, peak

ZERO3 = FULL | {
    "parallel.strategy": "zero3", "parallel.gpus": 8, "parallel.nodes": 2, "parallel.zero3_init": True,
    "optimizer.name": "adamw_torch_fused",
}  # fmt: skip
MIB = 1 << 20


def zero3(**options: Any) -> Estimate:
    return estimated(ZERO3 | {f"parallel.{name}": value for name, value in options.items()})


def test_hpz_keeps_a_second_copy_within_a_node() -> None:
    """`_partition_param_sec`: 2 bytes for each weight, divided by the ranks of the secondary group."""
    difference = peak(zero3(secondary_shard=8), "backward")["weights"] - peak(zero3(), "backward")["weights"]
    assert difference == pytest.approx(2 * LLAMA_2_7B / 8, abs=MIB)


def test_mics_divides_within_its_group() -> None:
    """`mics_shard_size` 4 of 16 ranks: weights, float32 masters and moments of a quarter, as four ranks alone would have."""
    group, alone = (peak(found, "optimizer_step") for found in (zero3(data_shard=4), zero3(gpus=4, nodes=1)))
    assert (group["weights"], group["optimizer_states"]) == (alone["weights"], alone["optimizer_states"])


def test_qwz_gathers_half_the_bytes() -> None:
    """int8 instead of bfloat16 in the all-gather's result, of which backward has one block's ahead; what is dequantised from it is as large
    as before."""
    plain, quantised = (
        peak(zero3(quantized_weights=on, reduce_bucket_size=0), "backward")["communication"] for on in (False, True)
    )
    assert plain - quantised == pytest.approx(LAYER, rel=0.01)


def test_frozen_weights_in_int8() -> None:
    lora = {"adapter.method": "lora", "adapter.r": 8, "adapter.target_modules": ["q_proj", "v_proj"], "adapter.dtype": "bfloat16"}
    held = [peak(estimated(ZERO3 | lora | {"parallel.quantized_frozen": on}), "load")["weights"] for on in (False, True)]
    assert held[0] - held[1] == pytest.approx(LLAMA_2_7B / 16, rel=0.001)


def test_a_reuse_distance_of_zero_keeps_no_block() -> None:
    """With the default of 10^9 elements the last blocks stay gathered between forward and backward."""
    default, none = (peak(zero3(**options), "backward")["communication"] for options in ({}, {"max_reuse_distance": 0}))
    assert default - none >= 2 * LAYER


def test_a_sub_group_is_at_least_one_parameter() -> None:
    """`_create_fp16_sub_groups` closes a group when it has reached the size: with 0 each parameter is one. The step raises one group's
    gradients to float32, beside their 16-bit copy; the norm of each parameter's gradient is taken in float64 before."""
    biggest = 32000 * 4096 // 16
    step = peak(zero3(sub_group_size=0), "optimizer_step")["workspace"] - 2 * 8_519_680
    assert step == pytest.approx(8 * biggest, abs=MIB)


def test_a_model_not_built_sharded_is_whole_on_every_card_first() -> None:
    """`engine.py` `_configure_distributed_model`: `self.module.to(self.device)`."""
    late = zero3(zero3_init=False)
    assert peak(late, "load")["weights"] == pytest.approx(2 * LLAMA_2_7B, rel=0.001)
    assert late.required.expected >= 2 * LLAMA_2_7B > zero3().required.expected


def test_nvme_needs_buffers_in_host_memory_only() -> None:
    """Four pinned buffers of a sub-group's float32 elements a rank, and the 16-bit gradients of the partition; the CPU would hold 16 bytes
    a parameter."""
    nvme, cpu = (zero3(offload_optimizer=where).host_bytes for where in ("nvme", "cpu"))
    assert nvme is not None
    assert cpu is not None
    partition = -(-LLAMA_2_7B // 16)
    kept = 8 * (4 * 4 * partition + 2 * partition)
    assert nvme.expected - 8 * (3 << 30) == pytest.approx(max(kept, 8 * 5e9), rel=0.01)
    assert cpu.expected - 8 * (3 << 30) == pytest.approx(max(16 * LLAMA_2_7B / 2, 8 * 5e9), rel=0.01)


def test_gradients_are_held_in_the_dtype_they_are_accumulated_in() -> None:
    """`data_types.grad_accum_dtype`: float32 instead of bfloat16, whole under stage 1, the partition under stages 2 and 3."""
    for stage, held in (("zero1", LLAMA_2_7B), ("zero2", LLAMA_2_7B / 16), ("zero3", LLAMA_2_7B / 16)):
        plain, wide = (
            peak(estimated(ZERO3 | {"parallel.strategy": stage, **more}), "optimizer_step")["gradients"]
            for more in ({}, {"optimizer.grad_dtype": "float32"})
        )
        assert wide - plain == pytest.approx(2 * held, rel=0.001)


def test_without_the_rate_limiter_gathers_pile_up() -> None:
    """torch's FSDP1 with `limit_all_gathers=False`: the reserve has room for every unit of a forward pass, what is allocated stays."""
    fsdp = FULL | {"parallel.strategy": "fsdp1", "framework.name": "pytorch"}
    limited, free = (estimated(fsdp | {"parallel.limit_all_gathers": on}) for on in (True, False))
    assert free.allocated.expected == limited.allocated.expected
    assert free.reserved.expected - limited.reserved.expected >= 20 * 2 * LAYER


def test_swifts_own_files_do_not_overlap() -> None:
    """ms-swift 3602360a56 `swift/config/zero3.json`, `zero2.json`: `overlap_comm` is off; the bucket is left to HF (the square of the
    width) at stage 3, 200 million elements below."""
    run = TrainingRun("test", Span("test", 1), {"framework.name": fixed("ms_swift"), "parallel.gpus": fixed(4)})
    third = sharding_of(run.with_values({"parallel.strategy": "zero3"}, "test"), 2)
    assert (third.overlap, third.bucket_of_width) == (False, True)
    second = sharding_of(run.with_values({"parallel.strategy": "zero2"}, "test"), 2)
    assert (second.overlap, second.bucket_of_width, second.reduce_bucket) == (False, False, 200_000_000)
    own = sharding_of(run.with_values({"parallel.strategy": "zero3", "parallel.overlap_comm": True}, "test"), 2)
    assert (own.overlap, own.bucket_of_width, own.reduce_bucket) == (True, False, 500_000_000)
