"""Sharded steps against real torch on two CPU processes (`tests/memory/record_sharded.py` made the record)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.gpus import find
from memlint.memory.program import Program, record
from memlint.memory.setup import setup_of
from memlint.memory.tensor import BLOCK, GATHER, REDUCE
from memlint.memory.versions import stack_of
from memlint.models import lookup
from memlint.source import Span

RECORD = json.loads((Path(__file__).parent / "data" / "sharded.json").read_text())
CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 896, "num_attention_heads": 8, "num_key_value_heads": 2,
    "vocab_size": 512, "tie_word_embeddings": False, "max_position_embeddings": 128, "hidden_act": "silu",
}  # fmt: skip
STEP = {
    "model.dtype": "float32", "objective": "causal_lm", "batch.micro_batch_size": 1, "batch.sequence_length": 128, "batch.packing": True,
    "optimizer.name": "adamw_torch_fused", "model.attention": "sdpa", "parallel.gpus": 2, "precision": "fp32",
}  # fmt: skip


def simulated(facts: dict[str, Any], layers: int = 3, card: str = "") -> Program:
    """One step of the recorded model with so many blocks."""
    run = TrainingRun("test", Span("test", 1), {key: fixed(value) for key, value in (STEP | facts).items()})
    architecture = lookup(None, config=CONFIG | {"num_hidden_layers": layers}).architecture
    assert architecture is not None
    return record(setup_of(run, architecture, find(card) if card else None, []), architecture, layers)


def rounded(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


FSDP2 = {
    "framework.name": "torchtitan", "parallel.strategy": "fsdp2", "precision": "bf16-mixed", "parallel.mp_param_dtype": "bfloat16",
    "parallel.mp_reduce_dtype": "float32", "parallel.last_layer_resharded": False, "kernels": ["rms_norm", "rope", "swiglu"],
}  # fmt: skip


UNITS = {"fsdp2": "2024-12", "fsdp2_root_resharded": "2025-07", "fsdp2_apart": "2025-08"}
"""torchtitan's units: embedding, final norm and head in the root with the last block kept; the same, the root freed as torch 2.8 does what
is asked of it; later two units, of which the head's is kept."""
WHOLE = {"fsdp2": {"root", "block 2"}, "fsdp2_root_resharded": {"block 2"}, "fsdp2_apart": {"head"}}


@pytest.mark.parametrize("units", UNITS)
def test_fsdp2_gathers_what_torch_gathers(units: str) -> None:
    """Everything in forward, in bfloat16, and what was not kept again in backward."""
    ledger = simulated(FSDP2 | {"framework.versions": {"torchtitan": UNITS[units]}}).ledger
    gathered = Counter(ledger.sizes[block] for block, stream in ledger.streams.items() if stream == GATHER)
    whole = {name for name, there in RECORD[units]["whole_after_forward"].items() if there}
    assert whole == WHOLE[units]
    assert gathered == Counter(rounded(size) for kind, size in RECORD[units]["events"] if kind == "gather")


@pytest.mark.parametrize("units", UNITS)
def test_fsdp2_reduces_what_torch_reduces(units: str) -> None:
    """The input of each reduce-scatter is float32; what stays of it is a half on each of two ranks."""
    ledger = simulated(FSDP2 | {"framework.versions": {"torchtitan": UNITS[units]}}).ledger
    reduced = [size for kind, size in RECORD[units]["events"] if kind == "reduce"]
    inputs = [size for size, component in zip(ledger.sizes, ledger.components, strict=True) if component == "communication"]
    assert Counter(map(rounded, reduced)) <= Counter(inputs)
    kept = sum(ledger.sizes[block] for block, stream in ledger.streams.items() if stream == REDUCE)
    assert RECORD[units]["gradient_dtypes"] == ["torch.float32"]
    assert abs(kept - sum(reduced) // 2) < 30 * BLOCK


@pytest.mark.parametrize(
    ("versions", "apart"),
    [({"accelerate": "1.13.0"}, False), ({"accelerate": "1.14.0"}, True), ({"transformers": "4.57.3"}, False), ({}, True)],
)
def test_accelerate_sets_embedding_and_head_apart_since_1_14(versions: dict[str, str], apart: bool) -> None:
    """`fsdp2_prepare_model`: the embedding, and the final norm with the head, which stays gathered; before, both are the root's."""
    facts = FSDP2 | {"framework.name": "transformers", "framework.versions": versions, "parallel.last_layer_resharded": True}
    ledger = simulated(facts).ledger
    gathered = Counter(ledger.sizes[block] for block, stream in ledger.streams.items() if stream == GATHER)
    embedding, tail, block = 512 * 256 * 2, 512 * 256 * 2 + 512, 1_704_960
    assert gathered == Counter({embedding: 2, tail: 1, block: 6} if apart else {embedding + tail: 1, block: 6})


def test_a_frozen_head_apart_is_freed_before_the_blocks_go_backward() -> None:
    """`post_backward` reshards a unit whether or not anything in it is trained."""
    lora = {"framework.name": "transformers", "adapter.method": "lora", "adapter.r": 8, "adapter.target_modules": ["q_proj"]}
    ledger = simulated(FSDP2 | lora).ledger
    tail = [block for block, stream in ledger.streams.items() if stream == GATHER and ledger.sizes[block] == 512 * 256 * 2 + 512]
    weights = [block for block, size in enumerate(ledger.sizes) if size == 512 * 256 * 2 + 512 and block not in tail]
    block_two = next(begin for begin, phase, layer in ledger.segments if (phase, layer) == ("backward", 1))
    assert len(tail) == len(weights) == 1
    assert -weights[0] in ledger.events[:block_two]


@pytest.mark.parametrize(
    ("versions", "loss", "expandable", "cudnn"),
    [
        ({"torchtitan": "2024-06"}, False, False, False),
        ({"torchtitan": "ccfc02be8 (2024-10-25)"}, True, True, False),  # e10cb94 and a5e57e4 are of 22 October
        ({"torchtitan": "9dec370 (2024-12-26)"}, False, True, False),  # e8977b0 of 18 December
        ({"torchtitan": "a59ed30a0 (2025-04-05)"}, True, True, False),  # bbb1b61 of 2 April
        ({"torchtitan": "6fc499f6", "torch": "2.9.0.dev20250815+cu128"}, True, True, True),  # 3b85aa3 of 14 May: cuDNN on B200
        ({"torchtitan": "e7c0cae", "torch": "2.8.0a0+5228986c39"}, True, True, False),
        ({"torch": "2.10.0"}, True, True, False),  # b39377f of 1 December 2025 saves all of SDPA's kernels
        ({}, True, True, False),
    ],
)
def test_torchtitans_history(versions: dict[str, str], loss: bool, expandable: bool, cudnn: bool) -> None:
    facts = {"framework.name": fixed("torchtitan"), "framework.versions": fixed(versions)}
    stack = stack_of(TrainingRun("test", Span("test", 1), facts))
    assert (stack.compiles_loss, stack.expandable_segments, stack.recomputes_cudnn) == (loss, expandable, cudnn)


def test_ddp_clones_what_torch_clones() -> None:
    """The logits, when it looks for unused parameters."""
    ddp = {"parallel.strategy": "ddp", "framework.name": "transformers"}
    plain, looking = (Counter(simulated(ddp | {"parallel.find_unused_parameters": on}).ledger.sizes) for on in (False, True))
    assert RECORD["ddp"]["plain"] == 0
    assert looking - plain == Counter([RECORD["ddp"]["find_unused"]])


SELECTIVE = {
    "framework.name": "torchtitan", "model.dtype": "bfloat16", "precision": "bf16-true", "parallel.gpus": 1, "compile": True,
    "checkpointing.enabled": True, "checkpointing.mode": "selective_op",
}  # fmt: skip


def kept_by_a_block(facts: dict[str, Any], card: str = "") -> int:
    """Bytes of activations that one block more leaves at the loss."""

    def at_the_loss(layers: int) -> int:
        ledger = simulated(facts, layers, card).ledger
        begins = next(begin for begin, phase, _ in ledger.segments if phase == "loss")
        live = sum(ledger.sizes[event] if event > 0 else -ledger.sizes[-event] for event in ledger.events[:begins])
        held = sum(
            ledger.sizes[event] for event in ledger.events[:begins] if event > 0 and ledger.components[event] != "activations"
        )
        return live - held

    return at_the_loss(4) - at_the_loss(3)


def test_a_compiled_block_keeps_what_torchs_partitioner_keeps() -> None:
    """Under selective checkpointing: the block's input, the first, third and fifth matrix product, attention's result and statistics."""
    assert abs(kept_by_a_block(SELECTIVE) - sum(RECORD["selective"])) <= 4 * BLOCK


def test_cudnns_attention_is_not_kept_where_the_policy_does_not_know_it() -> None:
    """Its result in bfloat16 and a float32 for each head and position: on Blackwell, with a torchtitan of 2025."""
    facts = SELECTIVE | {"framework.versions": {"torchtitan": "2025-09"}}
    whole = kept_by_a_block(facts, "H100")
    assert whole == kept_by_a_block(SELECTIVE, "B200")
    assert abs(whole - kept_by_a_block(facts, "B200") - (128 * 256 * 2 + 8 * 128 * 4)) <= 2 * BLOCK


@pytest.mark.parametrize(
    ("framework", "versions", "expands"),
    [
        ("torchtitan", {"torchtitan": "2025-12"}, True),
        ("torchtitan", {"torchtitan": "2026-02"}, False),  # ff0829c of 27 January: "GQA without kv repeats"
        ("torchtune", {"torchtune": "0.6"}, True),
    ],
)
def test_keys_and_values_of_grouped_heads(framework: str, versions: dict[str, str], expands: bool) -> None:
    """Without checkpointing a block keeps them for eight heads, in bfloat16, where its model expands them, else for two."""
    plain = SELECTIVE | {"checkpointing.enabled": False, "compile": False}
    grouped = kept_by_a_block(plain | {"framework.versions": {"torchtitan": "2026-06"}})
    found = kept_by_a_block(plain | {"framework.name": framework, "framework.versions": versions})
    assert found - grouped == (2 * (8 - 2) * 32 * 128 * 2 if expands else 0)
