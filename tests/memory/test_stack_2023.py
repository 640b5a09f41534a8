"""What libraries of 2023 allocated that those of today do not, by hand from their sources."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.gpus import find
from memlint.memory.result import Estimate
from memlint.memory.sharding import sharding_of
from memlint.memory.versions import stack_of
from memlint.source import Span
from tests.memory.test_sharding import FULL, LAYER, LLAMA_2_7B, estimated, peak

MIB = 1 << 20
WORKSPACES = 2 * 8_519_680
ALONE = FULL | {"parallel.gpus": 1, "parallel.strategy": "none", "optimizer.foreach": True}


def workspace(facts: dict[str, Any], **versions: str) -> int:
    """Temporaries of the optimizer's step."""
    return peak(estimated(facts | {"framework.versions": versions}), "optimizer_step")["workspace"] - WORKSPACES


def test_adamw_of_torch_2_0_has_two_lists() -> None:
    """`_multi_tensor_adamw`: 2.0.1 `denom = torch._foreach_add(exp_avg_sq_sqrt, eps)`; 2.1.2 `torch._foreach_add_`."""
    assert workspace(ALONE, torch="2.1.2", transformers="4.36") == pytest.approx(2 * LLAMA_2_7B, abs=MIB)
    assert workspace(ALONE, torch="2.0.1", transformers="4.36") == pytest.approx(4 * LLAMA_2_7B, abs=MIB)


def test_the_lists_are_made_for_one_dtype_after_the_other() -> None:
    """`_group_tensors_by_device_and_dtype`: bfloat16 copies of embedding and head come first, then float32 pairs, which replace the first
    of the two names while the second still holds what it had."""
    facts = ALONE | {"adapter.method": "lora", "adapter.r": 64, "adapter.target_modules": ["q_proj"],
                     "adapter.modules_to_save": ["embed_tokens", "lm_head"], "precision": "bf16-mixed"}  # fmt: skip
    copies, pairs = 2 * 32000 * 4096, 32 * 64 * (4096 + 4096)
    both = 2 * copies + 2 * copies + 4 * pairs
    assert workspace(facts, torch="2.0.1", transformers="4.32", peft="0.5") == pytest.approx(both, abs=MIB)


@pytest.mark.parametrize(("torch", "deepspeed"), [("1.13.1", (0, 11)), ("2.0", (0, 11)), ("2.1", (0, 13)), ("2.13", (0, 13))])
def test_deepspeed_is_of_the_days_of_torch(torch: str, deepspeed: tuple[int, int]) -> None:
    """PyPI: torch 2.1 came on 4 October 2023, DeepSpeed 0.12 on 3 November, 0.13 on 19 January 2024, torch 2.2 on the 30th."""
    run = TrainingRun("test", Span("test", 1), {"framework.versions": fixed({"torch": torch})})
    assert stack_of(run).deepspeed == deepspeed


def test_zero3_looked_through_bfloat16_gradients() -> None:
    """DeepSpeed 0.11 `has_overflow`: `torch.isinf(self.grad_partitions_flat_buffer)` makes an absolute value (2 bytes) and a boolean (1);
    0.12 does so for float16 only, and a sub-group of 10^9 elements is the most: flattened (2 bytes) and in float32 (4)."""
    facts = FULL | {"parallel.strategy": "zero3", "parallel.gpus": 1, "parallel.reduce_bucket_size": 0}
    assert workspace(facts, deepspeed="0.11.1") == 3 * LLAMA_2_7B
    assert workspace(facts, deepspeed="0.12.3") == 6 * 10**9
    half = facts | {"precision": "fp16-true", "model.dtype": "float16"}
    assert workspace(half, deepspeed="0.12.3") == 3 * LLAMA_2_7B


def test_zero2_adds_a_partition_to_a_partition() -> None:
    """`averaged_gradients` of the micro-batches before, and the `grads_in_partition` of the one at work: 2 bytes each."""
    facts = FULL | {"parallel.strategy": "zero2", "parallel.gpus": 4, "parallel.reduce_bucket_size": 10**8}
    several, one = (peak(estimated(facts | {"batch.gradient_accumulation_steps": n}), "backward")["gradients"] for n in (8, 1))
    partition = 2 * LLAMA_2_7B // 4
    assert several - one == partition
    assert one == pytest.approx(partition, rel=0.1)  # and whole gradients of the layer at work


def test_transformers_own_deepspeed_file() -> None:
    """`tests/deepspeed/ds_config_zero2.json` and `ds_config_zero3.json`, which scripts copy: two buckets of 2e8; the width's square."""
    run = TrainingRun("test", Span("test", 1), {"framework.name": fixed("hf_trainer"), "parallel.gpus": fixed(4)})
    second, third = (sharding_of(run.with_values({"parallel.strategy": f"zero{stage}"}, "test"), 2) for stage in (2, 3))
    assert (second.overlap, second.bucket_of_width, second.reduce_bucket) == (True, False, 200_000_000)
    assert (third.overlap, third.bucket_of_width) == (True, True)


def test_gptq_keeps_the_unpacked_weight() -> None:
    """auto-gptq 0.4.2's `QuantLinear` (`qlinear_cuda_old.py`), 1024 to 2048 features, keeps 4,194,304 bytes for backward: its weight in
    float16. fms-acceleration's kernels unpack it again."""
    facts = FULL | {"parallel.gpus": 1, "parallel.strategy": "none", "precision": "fp16-true", "model.dtype": "float16",
                    "quantization.method": "gptq", "checkpointing.enabled": False, "adapter.method": "lora",
                    "adapter.r": 8, "adapter.dtype": "float16", "adapter.target_modules": ["q_proj"],
                    "quantization.compute_dtype": "float16"}  # fmt: skip

    def kept(**versions: str) -> int:
        return peak(estimated(facts | {"framework.versions": versions}), "loss")["activations"]

    weights = 32 * (LAYER - 2 * 4096) - 3 * 4096 * 4096  # no gradient reaches what the first layer's q, k and v see
    assert kept(transformers="4.45") - kept(**{"transformers": "4.45", "fms-acceleration": "876e2ed"}) == 2 * weights


def test_the_drivers_part_is_halfway() -> None:
    """rust-nvml/nvml-wrapper#57: an idle A100 shows 912 MiB by NVML's first interface, 7.8 by its second, which nvidia-smi shows."""
    card = find("A100 80GB")
    assert card is not None
    found: Estimate = estimated(ALONE, card=card.name)
    beyond = found.device.expected - found.reserved.expected - card.context_bytes
    assert beyond == card.driver_bytes // 2 == pytest.approx(912 * MIB / 2, rel=0.05)


def test_a_cache_that_the_card_cannot_hold() -> None:
    """Qwen-7B on two cards of 80 GB, ZeRO-3 of 2023: its README has 69.6, 74.0 and 81.0 GB for lengths that make a difference of 2 GB at
    most. Where the cache fills the card it is given back, and what is left is less than the most."""
    facts = FULL | {"parallel.strategy": "zero3", "parallel.gpus": 2, "framework.versions": {"torch": "2.0"},
                    "batch.sequence_length": 1024}  # fmt: skip
    whole, tight = (estimated(facts, "Qwen/Qwen-7B", card) for card in ("H200", "A100 80GB"))
    card = find("A100 80GB")
    assert card is not None
    assert whole.reserved.expected > card.capacity_bytes
    assert tight.device.expected < tight.reserved.expected
    assert any("cannot hold the allocator's whole cache" in sentence for sentence in tight.assumptions)
