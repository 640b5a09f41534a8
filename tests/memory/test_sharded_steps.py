"""Sharded steps against real torch on two CPU processes (`tests/memory/record_sharded.py` made the record)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.program import Program, record
from memlint.memory.setup import setup_of
from memlint.memory.tensor import BLOCK, GATHER, REDUCE
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


def simulated(facts: dict[str, Any], layers: int = 3) -> Program:
    """One step of the recorded model with so many blocks."""
    run = TrainingRun("test", Span("test", 1), {key: fixed(value) for key, value in (STEP | facts).items()})
    architecture = lookup(None, config=CONFIG | {"num_hidden_layers": layers}).architecture
    assert architecture is not None
    return record(setup_of(run, architecture, None, []), architecture, layers)


def rounded(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


FSDP2 = {
    "framework.name": "torchtitan", "parallel.strategy": "fsdp2", "precision": "bf16-mixed", "parallel.mp_param_dtype": "bfloat16",
    "parallel.mp_reduce_dtype": "float32", "parallel.last_layer_resharded": False, "kernels": ["rms_norm", "rope", "swiglu"],
}  # fmt: skip


UNITS = {"fsdp2": "2024-12", "fsdp2_apart": "2025-08"}
"""torchtitan's units: embedding, final norm and head in the root with the last block kept; later two units, of which the head's is kept."""


@pytest.mark.parametrize("units", UNITS)
def test_fsdp2_gathers_what_torch_gathers(units: str) -> None:
    """Everything in forward, in bfloat16, and what was not kept again in backward."""
    ledger = simulated(FSDP2 | {"framework.versions": {"torchtitan": UNITS[units]}}).ledger
    gathered = Counter(ledger.sizes[block] for block, stream in ledger.streams.items() if stream == GATHER)
    whole = {name for name, there in RECORD[units]["whole_after_forward"].items() if there}
    assert whole == ({"head"} if units == "fsdp2_apart" else {"root", "block 2"})
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


def test_ddp_clones_what_torch_clones() -> None:
    """The logits, when it looks for unused parameters."""
    ddp = {"parallel.strategy": "ddp", "framework.name": "transformers"}
    plain, looking = (Counter(simulated(ddp | {"parallel.find_unused_parameters": on}).ledger.sizes) for on in (False, True))
    assert RECORD["ddp"]["plain"] == 0
    assert looking - plain == Counter([RECORD["ddp"]["find_unused"]])


def test_a_compiled_block_keeps_what_torchs_partitioner_keeps() -> None:
    """Under selective checkpointing: the block's input, the first, third and fifth matrix product, attention's result and statistics."""
    facts = {"framework.name": "torchtitan", "model.dtype": "bfloat16", "precision": "bf16-true", "parallel.gpus": 1, "compile": True,
             "checkpointing.enabled": True, "checkpointing.mode": "selective_op"}  # fmt: skip

    def at_the_loss(layers: int) -> int:
        ledger = simulated(facts, layers).ledger
        begins = next(begin for begin, phase, _ in ledger.segments if phase == "loss")
        live = sum(ledger.sizes[event] if event > 0 else -ledger.sizes[-event] for event in ledger.events[:begins])
        held = sum(
            ledger.sizes[event] for event in ledger.events[:begins] if event > 0 and ledger.components[event] != "activations"
        )
        return live - held

    assert abs(at_the_loss(4) - at_the_loss(3) - sum(RECORD["selective"])) <= 4 * BLOCK
