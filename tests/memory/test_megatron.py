"""Megatron-Core as Megatron-LM's source has it, by hand: Qwen2.5-7B over four tensor ranks, 8,192 tokens."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.estimate import estimate
from memlint.memory.result import Estimate
from memlint.models import lookup
from memlint.source import Span

GIB = 1 << 30
RUN = {
    "model.dtype": "bfloat16", "precision": "bf16-true", "objective": "causal_lm", "batch.micro_batch_size": 1, "batch.packing": True,
    "batch.sequence_length": 8192, "checkpointing.enabled": True, "checkpointing.mode": "full", "framework.name": "megatron",
    "optimizer.name": "megatron_distributed_adam", "optimizer.master_weights": True, "optimizer.grad_dtype": "float32",
    "loss.kernel": "megatron_fused_ce", "hardware.expandable_segments": True, "parallel.strategy": "megatron", "parallel.gpus": 4,
    "parallel.tensor": 4, "parallel.sequence_parallel": True, "parallel.distributed_optimizer": True,
}  # fmt: skip
RANK = 7_615_616_512 / 4
"""Weights of a rank: all but the norms are divided (these 0.2 million are not)."""


def estimated(facts: dict[str, Any], model: str = "Qwen/Qwen2.5-7B") -> Estimate:
    run = TrainingRun("test", Span("test", 1), {key: fixed(value) for key, value in (RUN | facts).items()})
    architecture = lookup(model).architecture
    assert architecture is not None
    return estimate(run, architecture)


def at(found: Estimate, phase: str) -> Any:
    return next(instant for instant in found.timeline if instant.phase == phase)


def test_weights_move_into_one_buffer_beside_the_gradients() -> None:
    """`_ParamAndGradBuffer`: 2 bytes of each weight as it was, 2 in the buffer and 4 of its gradient, before anything is freed. With the
    optimizer in host memory that is more than a step needs, and a card must have it."""
    found = estimated({"parallel.offload_optimizer": "cpu"})
    assert at(found, "load").peak_bytes == pytest.approx(8 * RANK, rel=0.01)
    assert found.required.expected >= at(found, "load").peak_bytes > found.allocated.expected
    assert found.peak_phase == "backward"
    replicated = estimated({"parallel.offload_optimizer": "cpu", "parallel.distributed_optimizer": False})
    assert at(replicated, "load").peak_bytes == pytest.approx(6 * RANK, rel=0.01)


@pytest.mark.parametrize("share", [0.25, 0.4, 1.0])
def test_a_part_of_the_optimizer_is_offloaded(share: float) -> None:
    """`HybridDeviceOptimizer`: float32 weights and two moments of `offload_fraction` of the weights are on the host."""
    found = estimated({"parallel.offload_optimizer": "cpu", "parallel.offload_optimizer_share": share})
    here = at(found, "backward").components.get("optimizer_states", 0)
    assert here == pytest.approx(12 * (1 - share) * RANK, rel=0.01, abs=1)


@pytest.mark.parametrize(("facts", "each"), [({}, 2 + 4 + 4), ({"optimizer.exp_avg_dtype": "bfloat16"}, 2 + 2 + 4)])
def test_the_precision_aware_optimizer_keeps_what_the_weights_lack(facts: dict[str, Any], each: int) -> None:
    """Transformer Engine 2.6 `fused_adam.py`, `store_param_remainders`: 16 bits beside each bfloat16 weight, and both moments."""
    found = estimated({"optimizer.precision_aware": True} | facts)
    assert at(found, "backward").components["optimizer_states"] == pytest.approx(each * RANK, rel=0.01)
    assert at(estimated({}), "backward").components["optimizer_states"] == pytest.approx(12 * RANK, rel=0.01)


def test_the_softmax_is_made_in_place() -> None:
    """`cross_entropy.py`: logits of 8,192 positions and 38,016 columns in bfloat16, and float32 ones that become the softmax; in backward
    the float32 softmax, the compiled scatter's buffer, and the gradient in bfloat16. Unfused, without that buffer."""
    logits, gathered = 8192 * 38016, 2 * 8192 * 3584

    def at_the_loss(kernel: str) -> tuple[int, int]:
        found = estimated({"loss.kernel": kernel, "model.layers_override": 1})
        forward, backward = at(found, "loss").components, at(found, "backward").components
        return forward["logits"], backward["logits"] + backward["activations"]

    fused, unfused = at_the_loss("megatron_fused_ce"), at_the_loss("torch_ce")
    assert fused[0] == unfused[0] == pytest.approx(6 * logits + gathered, rel=0.001)
    assert fused[1] - unfused[1] == pytest.approx(4 * logits, rel=0.01)


def test_stages_of_unequal_depth() -> None:
    """Two stages of Qwen2.5-7B's 28 layers of 233,057,792 weights: 20 on the first one, where the embedding is, leave 8 for the last."""
    layer, table = 233_057_792, 152064 * 3584
    both = {"parallel.tensor": 2, "parallel.pipeline": 2, "checkpointing.enabled": False, "checkpointing.mode": "none"}
    found = estimated(both | {"parallel.pipeline_first_layers": 20})
    assert at(found, "backward").components["weights"] == pytest.approx(2 * (20 * layer + table) / 2, rel=0.01)
    assert estimated(both | {"parallel.pipeline_last_layers": 8}).allocated == found.allocated


def test_a_row_of_an_expert_is_permuted_exchanged_and_sorted() -> None:
    """`MoELayer.forward`: rows are permuted, exchanged, sorted, and back again. Without recomputation a layer of Qwen3-30B-A3B keeps for
    each of its 8 copies of a token the sorted row (2,048 elements), both halves of the up-projection (1,536) and the down-projection's
    input (768), nothing of the two exchanges."""
    facts = {"parallel.tensor": 1, "parallel.expert": 4, "parallel.sequence_parallel": False, "checkpointing.enabled": False,
             "checkpointing.mode": "none", "parallel.expert_tensor": 1}  # fmt: skip
    deep, shallow = (
        at(estimated(facts | {"model.layers_override": layers}, "Qwen/Qwen3-30B-A3B"), "forward").components["activations"]
        for layers in (9, 8)
    )
    experts = 8192 * 8 * 2 * (2048 + 2 * 768 + 768)
    rest = 8192 * 2 * (5 * 2048 + (32 * 2 + 4 * 4) * 128)  # norms' inputs and outputs, the residual, queries, keys, values, mixed
    assert experts < deep - shallow < experts + 1.5 * rest


@pytest.mark.parametrize("mode", ["full", "none"])
def test_a_layer_that_predicts_the_token_after_the_next(mode: str) -> None:
    """`MultiTokenPredictionLayer`: another layer (233,057,792 weights), a projection from twice the width, three norms, and in float32 one
    more softmax until backward (`_postprocess`)."""
    checkpointing = {"checkpointing.enabled": mode == "full", "checkpointing.mode": mode}
    plain, predicting = (estimated(checkpointing | {"model.mtp_layers": count}) for count in (0, 1))
    weights = at(predicting, "loss").components["weights"] - at(plain, "loss").components["weights"]
    assert weights == pytest.approx(2 * (233_057_792 + 2 * 3584 * 3584) / 4, rel=0.01)
    more = at(predicting, "loss").components["logits"] - at(plain, "loss").components["logits"]
    softmax = 4 * 8192 * 38016
    assert softmax < more < (1.2 if mode == "full" else 2) * softmax
    assert predicting.allocated.expected > plain.allocated.expected + 18 / 4 * 233_057_792 + softmax
