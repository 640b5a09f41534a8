"""Sequences, matrices and experts that are divided outside of Megatron: published figures and sizes by hand."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.gpus import find
from memlint.memory.estimate import estimate
from memlint.memory.result import Estimate
from memlint.models import lookup
from memlint.source import Span

GIB = 1 << 30
MIB = 1 << 20
TITAN = {
    "model.dtype": "float32", "precision": "bf16-mixed", "objective": "causal_lm", "batch.micro_batch_size": 1, "batch.packing": True,
    "checkpointing.enabled": True, "optimizer.name": "adamw_torch_fused", "framework.name": "torchtitan", "model.attention": "sdpa",
    "framework.versions": {"torchtitan": "9dec370 (2024-12-26)"}, "hardware.expandable_segments": False, "compile": True,
    "parallel.strategy": "fsdp2", "parallel.mp_param_dtype": "bfloat16", "parallel.mp_reduce_dtype": "float32", "parallel.gpus": 8,
    "parallel.wrap_policy": "transformer", "parallel.last_layer_resharded": False,
}  # fmt: skip


def estimated(facts: dict[str, Any], model: str = "meta-llama/Llama-3.1-8B") -> Estimate:
    run = TrainingRun("test", Span("test", 1), {key: fixed(value) for key, value in (TITAN | facts).items()})
    architecture = lookup(model).architecture
    assert architecture is not None
    return estimate(run, architecture, find("H100 SXM 80GB"))


def kept(found: Estimate, phase: str = "load", component: str = "weights") -> int:
    return next(instant for instant in found.timeline if instant.phase == phase).components[component]


@pytest.mark.parametrize(("shard", "ranks", "printed"), [(8, 1, 83.9), (4, 2, 84.2), (2, 4, 84.0), (1, 8, 84.5)])
def test_context_parallel_ranks_share_weights_and_tokens(shard: int, ranks: int, printed: float) -> None:
    """torchtitan `benchmarks/llama3_h100_202412_torchtitan.md`, table 2: 32,768 tokens a rank on eight cards, whatever the split."""
    found = estimated({"parallel.data_shard": shard, "parallel.context": ranks, "batch.sequence_length": 32768 * ranks})
    assert found.reserved.expected / GIB == pytest.approx(printed, rel=0.1)
    assert kept(found) == pytest.approx(4 * 8_030_261_248 / 8, rel=1e-3)


def test_a_pipeline_under_fsdp_accumulates_whole_gradients() -> None:
    """The same page, table 5: 82.5 GiB for 405B over FSDP 8, tensor 8 and pipeline 8 (1F1B). The stage's 6.3B parameters are gathered
    throughout, and their gradients are float32 and whole until the last micro-batch."""
    split = {"parallel.nodes": 64, "parallel.data_shard": 8, "parallel.tensor": 8, "parallel.pipeline": 8,
             "parallel.sequence_parallel": True, "parallel.pipeline_micro_batches": 8,
             "batch.micro_batch_size": 32, "batch.sequence_length": 8192,
             "parallel.reshard_after_forward": False}  # fmt: skip
    assert estimated(split, "meta-llama/Llama-3.1-405B").reserved.expected / GIB == pytest.approx(82.5, rel=0.1)


def test_heads_are_exchanged_for_positions_or_keys_are_gathered() -> None:
    """Without checkpointing Ulysses keeps one more copy of each layer's mixed values: before and after the second all-to-all."""
    plain = {
        "batch.sequence_length": 4096,
        "parallel.data_shard": 1,
        "checkpointing.enabled": False,
        "parallel.gpus": 4,
        "compile": False,
    }
    alone = estimated(plain | {"parallel.data_shard": 4, "batch.sequence_length": 1024})
    ulysses = estimated(plain | {"parallel.context": 4, "parallel.context_comm": "a2a"})
    ring = estimated(plain | {"parallel.context": 4, "parallel.context_comm": "p2p"})
    mixed = 2 * 1024 * 4096
    alone_kept, ulysses_kept, ring_kept = (kept(found, "loss", "activations") for found in (alone, ulysses, ring))
    assert ulysses_kept - alone_kept == pytest.approx(32 * mixed, rel=0.05)
    assert ring_kept == alone_kept


def test_sequence_parallel_divides_the_residual_stream() -> None:
    """Under full checkpointing a layer keeps its input: a quarter of the positions on each of four tensor-parallel ranks."""
    split = {"parallel.tensor": 4, "parallel.gpus": 4, "batch.sequence_length": 8192, "batch.micro_batch_size": 4}
    whole, divided = (estimated(split | {"parallel.sequence_parallel": on}) for on in (False, True))
    inputs = 32 * 4 * 8192 * 4096 * 2
    assert whole.allocated.expected - divided.allocated.expected >= 0.75 * inputs


def test_tensor_parallel_ranks_of_torchtitan_have_a_part_of_the_vocabulary() -> None:
    """Every matrix divided by four, norms whole."""
    found = estimated({"parallel.tensor": 4, "parallel.gpus": 4, "batch.sequence_length": 2048})
    norms = 65 * 4096
    assert kept(found) == pytest.approx(4 * ((8_030_261_248 - norms) / 4 + norms), rel=1e-3)


def test_expert_parallel_ranks_gather_their_own_experts_only() -> None:
    """Mixtral 8x7B on 8 ranks, 4 of them for experts: what a rank holds between uses is an eighth with and without, what it gathers of a
    block is two experts instead of eight."""
    sparse = {"batch.sequence_length": 512, "framework.name": "torchtitan"}
    model = "mistralai/Mixtral-8x7B-v0.1"
    plain, spread = (estimated(sparse | {"parallel.expert": ranks}, model) for ranks in (1, 4))
    assert kept(spread) == pytest.approx(kept(plain), rel=1e-3)
    assert spread.parameters == plain.parameters
    expert = 3 * 4096 * 14336
    gathered = [next(i for i in found.timeline if i.phase == "forward").components["communication"] for found in (plain, spread)]
    assert gathered[0] - gathered[1] >= 2 * 6 * expert


def test_a_tensor_plan_spans_all_processes() -> None:
    """transformers' `tp_plan="auto"`: `tp_size` is the world; norms, embedding and head stay whole."""
    plan = {"parallel.tensor_plan": "auto", "parallel.strategy": "none", "framework.name": "transformers", "model.dtype": "bfloat16",
            "precision": "bf16-true", "batch.sequence_length": 512}  # fmt: skip
    root = 2 * 128256 * 4096 + 65 * 4096
    assert kept(estimated(plan)) == pytest.approx(2 * (root + (8_030_261_248 - root) / 8), abs=2 * MIB)


def test_a_megatron_rank_of_qwen3_5_holds_its_part_of_both_kinds_of_layers() -> None:
    """Qwen3.5-35B-A3B's configuration over tensor 2 and expert 8: three of four layers have linear attention (16 key and 32 value heads of
    128, a convolution over four positions), the others 16 heads of 256 with an output gate over 2 key heads; 256 experts of width 512 and
    a shared one. Norms and routers are whole on each rank, and so is the vision tower: patches of 2 x 16 x 16, 2304 positions, 27 blocks of
    width 1152 with biases (feed-forward 4304), a merger of four tokens."""
    hidden, inner, vocabulary = 2048, 512, 248320
    delta = hidden * (2 * 2048 + 2 * 4096 + 2 * 32) + (2 * 2048 + 4096) * 4 + 2 * 32 + 4096 * hidden
    full = hidden * (2 * 4096 + 2 * 512) + 4096 * hidden
    experts = 256 * 3 * hidden * inner // 8
    every = 2 * hidden + 256 * hidden
    block = 4 * 1152 + (1152 * 3456 + 3456) + (1152 * 1152 + 1152) + (1152 * 4304 + 4304) + (4304 * 1152 + 1152)
    merger = 2 * 1152 + (4608 * 4608 + 4608) + (4608 * hidden + hidden)
    tower = (3 * 2 * 16 * 16 * 1152 + 1152) + 2304 * 1152 + 27 * block + merger
    rank = tower + (
        40 * (experts + every + 3 * hidden * inner // 2) + 30 * (delta // 2 + 128) + 10 * full // 2 + vocabulary * hidden + hidden
    )
    run = {"framework.name": "megatron", "parallel.strategy": "megatron", "parallel.tensor": 2, "parallel.expert": 8,
           "model.dtype": "bfloat16", "precision": "bf16-true", "batch.sequence_length": 1024, "parallel.expert_tensor": 1}  # fmt: skip
    found = estimated(run, "Qwen/Qwen3.5-35B-A3B")
    assert kept(found) == pytest.approx(2 * rank, rel=1e-3)
