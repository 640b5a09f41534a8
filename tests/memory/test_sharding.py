"""Sharded jobs: published figures of two-card runs, buffers by hand from the frameworks' sources, DeepSpeed's own estimators."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed, unknown
from memlint.gpus import find
from memlint.memory.allocator import Replays
from memlint.memory.estimate import estimate
from memlint.memory.events import Events
from memlint.memory.result import CannotEstimate, Estimate
from memlint.memory.tensor import GATHER
from memlint.models import lookup
from memlint.source import Span

GIB = 1 << 30
LLAMA_2_7B = 6_738_415_616
LAYER = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
"""Weights of one Llama-2-7B layer."""
ROOT = 2 * 32000 * 4096 + 4096
"""Embedding, head and final norm."""


def estimated(facts: dict[str, Any], model: str = "meta-llama/Llama-2-7b-hf", card: str | None = None) -> Estimate:
    """The estimate of a run with these facts."""
    run = TrainingRun("test", Span("test", 1), {key: fixed(value) for key, value in facts.items()})
    architecture = lookup(model).architecture
    assert architecture is not None
    return estimate(run, architecture, find(card) if card else None)


def peak(found: Estimate, phase: str) -> dict[str, int]:
    """What a phase's peak consists of."""
    return dict(next(instant.components for instant in found.timeline if instant.phase == phase))


# Answer.AI's talk on FSDP and QLoRA: Llama-2-7B, two cards of 24 GB, micro-batch 8, context 2048, checkpointing, LoRA of rank 64.
QLORA = {
    "model.dtype": "bfloat16",
    "model.attention": "sdpa",
    "precision": "bf16-true",
    "quantization.double_quant": True,
    "adapter.method": "lora",
    "adapter.r": 64,
    "adapter.dropout": 0.1,
    "adapter.dtype": "bfloat16",
    "adapter.target_modules": ["q_proj", "k_proj", "v_proj", "up_proj", "gate_proj", "down_proj"],
    "batch.micro_batch_size": 8,
    "batch.gradient_accumulation_steps": 1,
    "batch.sequence_length": 2048,
    "batch.packing": False,
    "optimizer.name": "adamw_torch",
    "optimizer.foreach": True,
    "checkpointing.enabled": True,
    "objective": "causal_lm",
    "loss.logits": "full",
    "loss.kernel": "torch_ce",
    "loss.upcast_fp32": True,
    "parallel.gpus": 2,
    "parallel.wrap_policy": "transformer",
}
TRAIN_PY = QLORA | {
    "framework.name": "fsdp_qlora",
    "framework.versions": {"torch": "2.2", "transformers": ">=4.38", "bitsandbytes": "~0.43"},
    "quantization.method": "bnb_4bit",
    "quantization.compute_dtype": "bfloat16",
    "quantization.skip_modules": ["lm_head"],
    "checkpointing.use_reentrant": True,
    "parallel.strategy": "fsdp1",
    "parallel.wrap_trainable_leaves": True,
    "parallel.use_orig_params": False,
}
TORCHTUNE = QLORA | {
    "framework.name": "torchtune",
    "quantization.method": "torchao_nf4",
    "quantization.skip_modules": ["lm_head", "embed_tokens"],
    "checkpointing.use_reentrant": False,
    "parallel.strategy": "fsdp2",
}


def test_the_talks_case() -> None:
    """torchtune's figure is a step's; train.py's is what forward and loss reach."""
    torchtune = estimated(TORCHTUNE, card="RTX 3090").allocated
    assert torchtune.expected / GIB == pytest.approx(12.60, rel=0.1)
    assert torchtune.low <= 12.60 * GIB <= torchtune.high
    train = next(instant for instant in estimated(TRAIN_PY, card="RTX 3090").timeline if instant.phase == "loss")
    assert train.peak_bytes / GIB == pytest.approx(12.88, rel=0.02)


@pytest.mark.parametrize(("length", "printed"), [(512, 8.28), (2048, 9.16)])
def test_the_next_block_is_gathered_when_a_blocks_leaves_have_been_backward(length: int, printed: float) -> None:
    """fsdp_qlora's own benchmark (`benchmarks_03_2024.md`), LoRA on two cards: "Peak allocated memory". At the end of a block's backward
    its flat parameter and the next block's are there, beside the root's."""
    facts = TRAIN_PY | {"quantization.method": "none", "batch.micro_batch_size": 1, "batch.sequence_length": length}
    found = estimated(facts, card="RTX 3090")
    assert found.allocated.expected / GIB == pytest.approx(printed, rel=0.02)


def test_fsdp_qloras_output_lives_until_backward_is_over() -> None:
    """`output = model(...)` up to "Delete the output so more memory frees up before the next forward pass": beside its float32 logits
    backward has log-softmax's result and two gradients, and the next forward finds none of them."""
    found = estimated(TRAIN_PY, card="RTX 3090")
    one = 8 * 2048 * 32000 * 4
    assert peak(found, "backward")["logits"] == pytest.approx(2 * one, rel=0.01)
    assert "logits" not in peak(found, "forward")


def test_why_the_talks_two_figures_differ() -> None:
    """bitsandbytes' statistics (one byte per 64 weights) lie whole on both ranks; torchao's are sharded with the weights."""
    bitsandbytes, torchao = (peak(estimated(facts), "optimizer_step")["weights"] for facts in (TRAIN_PY, TORCHTUNE))
    statistics = 32 * (LAYER - 2 * 4096) // 64
    assert bitsandbytes - torchao == pytest.approx(statistics // 2, rel=0.05)


@pytest.mark.parametrize(("version", "kept"), [("0.2.1", 2), ("0.3.0", 1)])
def test_torchtune_deletes_its_logits_before_backward_since_0_3(version: str, kept: int) -> None:
    """Before, the shifted float32 copy stays bound to `logits` beside log-softmax's result (torchtune 8a98fba of 28 July 2024)."""
    facts = TORCHTUNE | {"parallel.strategy": "none", "parallel.gpus": 1, "framework.versions": {"torchtune": version}}
    assert peak(estimated(facts), "backward")["logits"] == pytest.approx(kept * 8 * 2048 * 32000 * 4, rel=0.01)


FULL = {
    "model.dtype": "bfloat16",
    "precision": "bf16-true",
    "model.attention": "sdpa",
    "batch.micro_batch_size": 1,
    "batch.sequence_length": 128,
    "batch.packing": True,
    "optimizer.name": "adamw_torch_fused",
    "checkpointing.enabled": True,
    "objective": "causal_lm",
    "parallel.gpus": 4,
}


def test_fsdp_without_synchronisation_keeps_whole_gradients() -> None:
    """accelerate's `accumulate` enters `no_sync`: every rank holds gradients of all weights (2 bytes each) during backward."""
    base = FULL | {"parallel.strategy": "fsdp1", "framework.name": "transformers", "batch.gradient_accumulation_steps": 4}
    whole = peak(estimated(base), "backward")["gradients"]
    assert whole >= 2 * LLAMA_2_7B
    shares = peak(estimated(base | {"parallel.sync_each_batch": True}), "backward")["gradients"]
    assert shares <= 2 * LLAMA_2_7B / 4 + 2 * 2 * max(LAYER, ROOT) + (1 << 20)


def test_mixed_flat_parameter_has_a_gradient_as_a_whole() -> None:
    """Frozen and trained weights in one flat parameter (`split_with_sizes_backward` fills in zeros): Lightning-AI/litgpt#1538 quotes
    torch's warning that the gradient covers the unit."""
    lora = FULL | {"adapter.method": "lora", "adapter.r": 8, "adapter.dtype": "bfloat16", "framework.name": "litgpt",
                   "adapter.target_modules": ["q_proj", "v_proj"], "parallel.strategy": "fsdp1", "batch.gradient_accumulation_steps": 4,
                   "framework.versions": {"litgpt": "0.5", "torch": "2.6"}}  # fmt: skip
    mixed = peak(estimated(lora | {"parallel.mixed_frozen_flat": True}), "backward").get("gradients", 0)
    apart = peak(estimated(lora | {"parallel.mixed_frozen_flat": False}), "backward").get("gradients", 0)
    assert mixed >= 32 * 2 * LAYER > 20 * apart


def test_fsdp2_holds_two_gathered_units_and_the_reduction_before() -> None:
    """torch 2.13 `_fsdp_param_group.py`: in backward a block's weights (bf16) and the next block's all-gather result, and the float32
    input of the last reduce-scatter until the next one starts; embedding and head stay gathered."""
    found = peak(estimated(FULL | {"parallel.strategy": "fsdp2", "framework.name": "torchtitan", "precision": "bf16-mixed",
                                   "model.dtype": "float32", "parallel.mp_param_dtype": "bfloat16",
                                   "parallel.mp_reduce_dtype": "float32"}), "backward")["communication"]  # fmt: skip
    assert 2 * ROOT <= found <= 2 * ROOT + 2 * 2 * LAYER + 4 * max(LAYER, ROOT) + (8 << 20)


DEEPSPEED = json.loads((Path(__file__).parent / "data" / "deepspeed_estimators.json").read_text())


@pytest.mark.parametrize("row", DEEPSPEED["zero2"], ids=lambda row: f"zero2-{row['gpus']}-{row['offload']}")
def test_deepspeeds_zero2_estimate(row: dict[str, Any]) -> None:
    """2 bytes per parameter, and 18 per parameter of the partition: 16-bit gradients, their float32 copy, float32 weights, two moments.

    A step holds these and, while it makes the float32 copy, the flattened 16-bit gradients (2 bytes), which DeepSpeed leaves out.
    """
    facts = FULL | {"parallel.strategy": "zero2", "parallel.gpus": row["gpus"], "parallel.reduce_bucket_size": 0,
                    "parallel.offload_optimizer": "cpu" if row["offload"] else "none"}  # fmt: skip
    components = peak(estimated(facts), "optimizer_step")
    states = components["weights"] + components.get("optimizer_states", 0) + components.get("gradients", 0)
    if not row["offload"]:
        step, flat = components["workspace"] - 2 * 8_519_680, 2 * -(-LLAMA_2_7B // row["gpus"])
        states += step - flat
    assert states == row["gpu"]


@pytest.mark.parametrize("row", DEEPSPEED["zero3"], ids=lambda row: f"zero3-{row['gpus']}")
def test_deepspeeds_zero3_estimate(row: dict[str, Any]) -> None:
    """4 bytes for the largest layer, and 18 per parameter of the partition: 16-bit weights, float32 weights and gradients, moments.

    Weights and optimizer states agree. The float32 gradients exist for one sub-group (10^9 elements) at a time only, and the
    16-bit gradients, which DeepSpeed leaves out, live in a buffer of the partition's size throughout.
    """
    facts = FULL | {"parallel.strategy": "zero3", "parallel.gpus": row["gpus"], "parallel.reduce_bucket_size": 0}
    components = peak(estimated(facts), "optimizer_step")
    partition = -(-LLAMA_2_7B // row["gpus"])
    assert components["weights"] + components["optimizer_states"] + 4 * partition == row["gpu"] - row["largest"]
    assert components["gradients"] == 2 * partition
    assert components["workspace"] - 2 * 8_519_680 == (2 + 4) * min(partition, 10**9)


def test_data_parallel_loads_the_first_card() -> None:
    """huggingface/transformers#4622: 30,931 MiB on the first card of eight against 18,963 on the others (V100, `nn.DataParallel`): the
    first one gathers all logits and sums the gradients. By hand for sixteen replicas here: the logits of all, 2 bytes each, at the end of
    forward, where a card alone is 8 bytes per logit below its peak in backward."""
    batch = FULL | {"batch.sequence_length": 2048, "checkpointing.enabled": False, "adapter.method": "lora", "adapter.r": 8}
    alone = estimated(batch | {"parallel.gpus": 1, "parallel.strategy": "none"}).allocated.expected
    first = estimated(batch | {"parallel.strategy": "dp", "parallel.gpus": 16}).allocated.expected
    logits = 2048 * 32000
    assert 0.8 * (16 * 2 - 8) * logits < first - alone <= 16 * 2 * logits


def test_a_reference_model_is_a_second_copy_of_the_weights() -> None:
    dpo = FULL | {"objective": "dpo", "parallel.gpus": 1, "parallel.strategy": "none"}
    with_copy, without = (estimated(dpo | {"reference_model": kind}) for kind in ("copy", "precomputed"))
    assert peak(with_copy, "load")["weights"] - peak(without, "load")["weights"] == pytest.approx(2 * LLAMA_2_7B, abs=1 << 20)


def test_an_unknown_reference_is_bounded_by_both() -> None:
    """A script that decides about its reference by means that were not understood: as much as with a copy, as little as without."""
    dpo = FULL | {"objective": "dpo", "parallel.gpus": 1, "parallel.strategy": "none"}
    with_copy, without = (estimated(dpo | {"reference_model": kind}) for kind in ("copy", "none"))
    facts = {key: fixed(value) for key, value in dpo.items()} | {"reference_model": unknown("args.ref is not known here")}
    architecture = lookup("meta-llama/Llama-2-7b-hf").architecture
    assert architecture is not None
    found = estimate(TrainingRun("test", Span("test", 1), facts), architecture, None).allocated
    assert found.expected == with_copy.allocated.expected
    assert (found.low, found.high) == (without.allocated.low, with_copy.allocated.high)
    assert found.high - found.low > 2 * LLAMA_2_7B


def test_hybrid_sharding_divides_within_a_node() -> None:
    fsdp = FULL | {"parallel.strategy": "fsdp2", "parallel.nodes": 2, "framework.name": "torchtune"}
    hybrid = peak(estimated(fsdp | {"parallel.fsdp_sharding": "hybrid_shard"}), "load")["weights"]
    assert hybrid == pytest.approx(2 * LLAMA_2_7B / 4, rel=0.001)
    assert peak(estimated(fsdp), "load")["weights"] == pytest.approx(2 * LLAMA_2_7B / 8, rel=0.001)


def test_tensor_parallel_ranks_hold_their_share_of_every_matrix() -> None:
    """Norms, embedding and head stay whole on each of two ranks; the model is reported as a whole."""
    found = estimated(FULL | {"parallel.gpus": 2, "parallel.tensor": 2, "parallel.strategy": "none"})
    assert peak(found, "load")["weights"] == pytest.approx(2 * (ROOT + 32 * (2 * 4096 + (LAYER - 2 * 4096) // 2)), abs=1 << 20)
    assert found.parameters == LLAMA_2_7B


def test_device_map_deals_the_layers() -> None:
    mapped = FULL | {"parallel.strategy": "device_map", "model.device_map": "auto", "parallel.gpus": 4}
    assert peak(estimated(mapped), "load")["weights"] == pytest.approx(2 * (ROOT + 8 * LAYER), abs=1 << 20)


def test_a_colocated_engine_takes_its_share_of_the_card() -> None:
    grpo = FULL | {"objective": "grpo", "parallel.gpus": 1, "parallel.strategy": "none"}
    card = find("A100 80GB")
    assert card is not None
    colocated = estimated(grpo | {"generation.vllm": "colocate", "generation.gpu_memory_utilization": 0.3}, card=card.name)
    alone = estimated(grpo, card=card.name)
    assert colocated.allocated.expected - alone.allocated.expected == pytest.approx(0.3 * card.capacity_bytes, rel=0.001)


INITIALISED = [row for row in DEEPSPEED["zero3_offload"] if row["zero_init"]]
"""Without `zero.Init` DeepSpeed counts a float32 model for every rank; here the model is loaded in bfloat16."""


@pytest.mark.parametrize("row", INITIALISED, ids=lambda row: f"{row['gpus']}-{row['params']}")
def test_host_memory_of_offloaded_states(row: dict[str, Any]) -> None:
    """DeepSpeed's figure for one node (its factor of 1.5 included) lies inside the interval: 16 bytes per parameter for float32 weights,
    gradients and moments, 2 more for offloaded 16-bit weights."""
    facts = FULL | {"parallel.strategy": "zero3", "parallel.gpus": row["gpus"], "parallel.offload_optimizer": "cpu",
                    "parallel.offload_params": "cpu" if row["params"] else "none", "parallel.zero3_init": row["zero_init"]}  # fmt: skip
    host = estimated(facts).host_bytes
    assert host is not None
    assert host.low <= row["cpu"] <= host.high


MIB = 1 << 20


def events(*steps: tuple[int, int], streams: Mapping[int, int] = {}, lag: int = 0) -> Events:
    """One step of (block, MiB) allocations, and (-block, 0) frees, after an empty load."""
    sizes = [0] * (1 + max(abs(block) for block, _ in steps))
    for block, size in steps:
        if block > 0:
            sizes[block] = size * MIB
    stream = [block for block, _ in steps]
    nothing = {"loading": [], "buffers": [], "first": [], "states": [], "peaks": []}
    places = {"updates": len(stream), "first_updates": 0, "top": 0, "requested": 0, "small": 0}
    return Events(**nothing, **places, step=stream, sizes=sizes, streams=streams, lag=lag)


def test_another_streams_blocks_have_segments_of_their_own() -> None:
    """A freed block of 64 MiB serves the next request on its own stream, not one on another."""
    same = events((1, 64), (-1, 0), (2, 64), (-2, 0))
    assert Replays(same).unlimited().reserved == 64 * MIB
    other = events((1, 64), (-1, 0), (2, 64), (-2, 0), streams={1: GATHER})
    assert Replays(other).unlimited().reserved == 128 * MIB


def test_blocks_that_the_computation_still_uses_wait() -> None:
    """`record_stream`: with a lag of one, the second all-gather finds the first one's memory still taken, the third one finds it."""
    gathers = ((1, 64), (-1, 0), (2, 64), (-2, 0), (3, 64), (-3, 0))
    assert Replays(events(*gathers, streams=dict.fromkeys((1, 2, 3), GATHER), lag=1)).unlimited().reserved == 128 * MIB


def test_an_expandable_segment_grows_at_its_end() -> None:
    """64 MiB freed between two live blocks do not serve 80; at the end of the segment they are grown by pages of 20 MiB."""
    middle = events((1, 64), (2, 40), (-1, 0), (3, 80), (-2, 0), (-3, 0))
    assert Replays(middle).unlimited().reserved == (64 + 40 + 80) * MIB
    # 64 in four pages, whose rest of 16 starts the next block
    assert Replays(middle, expandable=True).unlimited().reserved == (80 + 40 + 80) * MIB
    end = events((1, 64), (-1, 0), (2, 80), (-2, 0))
    assert Replays(end).unlimited().reserved == (64 + 80) * MIB
    assert Replays(end, expandable=True).unlimited().reserved == 80 * MIB


@pytest.mark.parametrize(
    "model",
    [
        "state-spaces/mamba-2.8b-hf",
        "ai21labs/Jamba-v0.1",
        "tiiuae/Falcon-H1-7B-Base",
        "openai/whisper-large-v3",
        "google/flan-t5-xl",
    ],
)
def test_what_the_megatron_page_does_not_know_is_said(model: str) -> None:
    run = {"model.id": model, "model.dtype": "bfloat16", "precision": "bf16-true", "parallel.strategy": "megatron",
           "parallel.gpus": 8, "parallel.tensor": 2, "batch.micro_batch_size": 1, "batch.sequence_length": 1024,
           "optimizer.name": "adamw_torch", "loss.logits": "fused"}  # fmt: skip
    with pytest.raises(CannotEstimate, match="Megatron page"):
        estimated(run, model)


def test_megatron_builds_the_text_decoder_of_a_vision_language_model() -> None:
    """Two tensor ranks hold half of Qwen3-VL-30B-A3B's 30.53e9 text weights (its model card) in two bytes; norms, router and the rest of
    its 31.07e9 weights, the vision tower, whole (mcore-bridge `HuggingFaceVit`)."""
    run = {"model.id": "Qwen/Qwen3-VL-30B-A3B-Instruct", "model.dtype": "bfloat16", "precision": "bf16-true", "parallel.gpus": 2,
           "parallel.strategy": "megatron", "parallel.tensor": 2, "parallel.expert_tensor": 2, "batch.micro_batch_size": 1,
           "batch.sequence_length": 1024, "optimizer.name": "adamw_torch", "loss.logits": "fused"}  # fmt: skip
    assert estimated(run, "Qwen/Qwen3-VL-30B-A3B-Instruct").components["weights"] == pytest.approx(
        30.53e9 + 2 * 0.54e9, rel=0.005
    )


def test_packed_rows_of_ms_swift_hold_both_sequences_of_a_pair() -> None:
    """`dataset/packing.py` adds up the lengths of chosen and rejected; TRL's rows hold one sequence each, twice as many rows."""
    run = {"model.dtype": "bfloat16", "precision": "bf16-true", "objective": "dpo", "reference_model": "none", "batch.packing": True,
           "batch.micro_batch_size": 1, "batch.sequence_length": 4096, "optimizer.name": "sgd", "loss.logits": "full"}  # fmt: skip
    supervised, packed, padded = (
        estimated(run | more).allocated.expected
        for more in ({"objective": "causal_lm"}, {"framework.name": "ms_swift"}, {"framework.name": "trl"})
    )
    assert packed == pytest.approx(supervised, rel=0.02)
    assert padded > 1.4 * packed


@pytest.mark.parametrize(("accelerate", "expected"), [("1.15.0", 12), ("0.29.3", 6)])
def test_accelerate_raises_trained_shards_to_float32(accelerate: str, expected: int) -> None:
    """Under mixed precision a 16-bit model has float32 shards and states (4 + 8 bytes a weight) from accelerate 0.30 on, else 2 + 4."""
    run = {"model.id": "meta-llama/Llama-3.2-1B", "model.dtype": "bfloat16", "precision": "bf16-mixed", "parallel.strategy": "fsdp1",
           "parallel.gpus": 4, "parallel.fsdp_sharding": "full_shard", "batch.micro_batch_size": 1, "batch.sequence_length": 512,
           "optimizer.name": "adamw_torch", "checkpointing.enabled": True, "framework.name": "trl",
           "framework.versions": {"accelerate": accelerate, "transformers": "4.51.0"}}  # fmt: skip
    found = lookup("meta-llama/Llama-3.2-1B")
    assert found.architecture is not None
    result = estimate(TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in run.items()}), found.architecture, None)
    step = next(instant for instant in result.timeline if instant.phase == "optimizer_step")
    held = step.components["weights"] + step.components["optimizer_states"]
    assert held == pytest.approx(expected * 1_235_814_400 / 4, rel=0.05)


def test_adapters_of_experts_have_the_experts_data_parallel_group() -> None:
    """Four ranks with 32 of 128 experts each share no expert: 12 bytes for every weight of a rank's pairs, of rank 32 on both grouped
    linears (2048 -> 2 x 768 and 768 -> 2048) in 48 layers; the attention's pairs are spread over four."""
    run = {"model.id": "Qwen/Qwen3-30B-A3B", "model.dtype": "bfloat16", "precision": "bf16-true", "parallel.strategy": "megatron",
           "parallel.gpus": 4, "parallel.expert": 4, "parallel.distributed_optimizer": True, "adapter.method": "lora", "adapter.r": 32,
           "adapter.target_modules": "all-linear", "optimizer.name": "megatron_distributed_adam", "optimizer.master_weights": True,
           "batch.micro_batch_size": 1, "batch.sequence_length": 1024, "framework.name": "ms_swift"}  # fmt: skip
    experts = 48 * 32 * 32 * (2048 + 2 * 768 + 768 + 2048)
    attention = 48 * 32 * ((2048 + 32 * 128 + 2 * 4 * 128) + (32 * 128 + 2048))
    states = estimated(run, "Qwen/Qwen3-30B-A3B").components["optimizer_states"]
    assert states == pytest.approx(12 * (experts + attention / 4), rel=0.01)


@pytest.mark.parametrize(("framework", "parts_of_experts"), [("axolotl", 4), ("torchtitan", 2)])
def test_expert_parallelism_stands_beside_the_sharding_axis_or_takes_ranks_from_it(framework: str, parts_of_experts: int) -> None:
    """Degree 2 and a shard group of 2. axolotl's is a grid of 4 cards: experts in quarters, all else in halves. torchtitan's two cards are
    the shard group, which expert parallelism divides: two experts' halves, not sharded again. 28.99e9 of Qwen3-30B-A3B's 30.53e9
    weights are experts: 48 layers x 128 experts x 3 matrices of 2048 x 768."""
    run = {"model.id": "Qwen/Qwen3-30B-A3B", "model.dtype": "bfloat16", "precision": "bf16-true", "parallel.strategy": "fsdp2",
           "parallel.gpus": 4, "parallel.data_shard": 2, "parallel.expert": 2, "optimizer.name": "sgd", "framework.name": framework,
           "batch.micro_batch_size": 1, "batch.sequence_length": 512}  # fmt: skip
    experts = 48 * 128 * 3 * 2048 * 768
    weights = estimated(run, "Qwen/Qwen3-30B-A3B").components["weights"]
    assert weights == pytest.approx(2 * (experts / parts_of_experts + (30_532_122_624 - experts) / 2), rel=0.03)


@pytest.mark.parametrize("model", ["google/gemma-4-E4B", "Qwen/Qwen2.5-VL-3B-Instruct"])
def test_the_references_pass_leaves_what_the_policys_recomputation_looks_at(model: str) -> None:
    """Keys and values that layers share, a tower's rotary tables: the policy's backward, which comes after the reference's forward, runs
    its blocks again. The reference adds its weights; the policy's own peak stays."""
    run = {"model.dtype": "bfloat16", "precision": "bf16-true", "objective": "dpo", "checkpointing.enabled": True, "batch.images": 1,
           "vision.trainable": True, "parallel.gpus": 1, "optimizer.name": "sgd", "batch.sequence_length": 1024,
           "batch.micro_batch_size": 1}  # fmt: skip
    alone, beside = (estimated(run | {"reference_model": kind}, model) for kind in ("none", "copy"))
    held = beside.components["weights"] - alone.components["weights"]
    assert held == pytest.approx(alone.components["weights"], rel=0.01)
