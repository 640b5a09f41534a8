"""Repeating the middle layer gives the same events as simulating every layer: peaks and what is left over agree exactly."""

from __future__ import annotations

from itertools import accumulate, product
from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory import program, timeline
from memlint.memory.estimate import estimate
from memlint.memory.events import Events
from memlint.memory.setup import setup_of
from memlint.models import from_config
from memlint.source import Span

LAYERS = 9

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": LAYERS,
    "vocab_size": 1000,
}
BERT = {
    "model_type": "bert",
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_attention_heads": 4,
    "num_hidden_layers": LAYERS,
    "vocab_size": 1000,
}

PRECISIONS = {
    "fp32": {"precision": "fp32", "model.dtype": "float32"},
    "amp": {"precision": "bf16-mixed", "model.dtype": "float32"},
    "bf16": {"precision": "bf16-true", "model.dtype": "bfloat16"},
}
TUNINGS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"adapter.method": "lora", "adapter.r": 8, "adapter.target_modules": "all-linear", "adapter.dropout": 0.1},
    "qlora": {
        "adapter.method": "lora",
        "adapter.target_modules": "all-linear",
        "quantization.method": "bnb_4bit",
        "framework.versions": {"bitsandbytes": "0.42.0"},
    },
}
CHECKPOINTING = {
    "off": {"checkpointing.enabled": False},
    "reentrant": {"checkpointing.enabled": True, "checkpointing.use_reentrant": True},
    "not reentrant": {"checkpointing.enabled": True, "checkpointing.use_reentrant": False},
    "selective": {"checkpointing.enabled": True, "checkpointing.mode": "selective_op"},
}
LOOPS: dict[str, dict[str, Any]] = {
    "one GPU": {},
    "accumulating": {"batch.gradient_accumulation_steps": 4},
    "own loop": {"framework.name": "pytorch", "batch.packing": True},
    "ddp": {"parallel.strategy": "ddp", "parallel.gpus": 4},
    "fsdp1": {"parallel.strategy": "fsdp1", "parallel.gpus": 4},
    "fsdp2": {"parallel.strategy": "fsdp2", "parallel.gpus": 4, "batch.gradient_accumulation_steps": 2},
    "zero2": {"parallel.strategy": "zero2", "parallel.gpus": 4},
    "zero3": {"parallel.strategy": "zero3", "parallel.gpus": 4},
}


@pytest.mark.parametrize(
    ("config", "precision", "tuning", "checkpointing", "loop"),
    list(product(("llama", "bert"), PRECISIONS, TUNINGS, CHECKPOINTING, LOOPS)),
)
def test_repetition_equals_simulation(config: str, precision: str, tuning: str, checkpointing: str, loop: str) -> None:
    architecture = from_config(LLAMA if config == "llama" else BERT)
    facts = {
        "batch.micro_batch_size": 2,
        "batch.sequence_length": 256,
        "objective": "causal_lm" if config == "llama" else "sequence_classification",
        "framework.name": "transformers",
        **PRECISIONS[precision],
        **TUNINGS[tuning],
        **CHECKPOINTING[checkpointing],
        **LOOPS[loop],
    }
    run = TrainingRun("run.yaml", Span("run.yaml", 1), {key: fixed(value) for key, value in facts.items()})
    setup = setup_of(run, architecture, None, [])
    whole = program.record(setup, architecture, LAYERS)
    few = program.record(setup, architecture, timeline.SIMULATED)
    simulated = timeline.unrolled(whole.ledger, LAYERS, LAYERS, counted=0)
    repeated = timeline.unrolled(few.ledger, timeline.SIMULATED, LAYERS, counted=0)
    assert repeated.peaks == simulated.peaks
    totals = _totals(repeated)
    assert totals[-1] == _totals(simulated)[-1]
    assert max(totals) == max(peak.total for peak in repeated.peaks)
    few_placed = timeline.unrolled(few.ledger, timeline.SIMULATED, LAYERS, counted=100_000)
    assert few_placed.peaks == repeated.peaks
    assert few_placed.small == max(_totals(repeated, at_most=100_000))
    assert max(_totals(few_placed)) == max(_totals(repeated, more_than=100_000))


def _totals(events: Events, more_than: int = 0, at_most: int = 1 << 60) -> list[int]:
    """What blocks of these sizes hold together after each event of the recorded program."""
    changes = [
        size if event > 0 else -size
        for event in (*events.loading, *events.buffers, *events.first, *events.states, *events.step)
        if more_than < (size := events.sizes[abs(event)]) <= at_most
    ]
    return [*accumulate(changes, initial=0)]


def test_the_highest_total_of_a_step_is_that_of_its_placed_and_small_blocks() -> None:
    """`top` is where it is reached, `requested` what placed blocks then hold."""
    facts = {"batch.micro_batch_size": 2, "batch.sequence_length": 256, "objective": "causal_lm", **PRECISIONS["amp"]}
    run = TrainingRun("run.yaml", Span("run.yaml", 1), {key: fixed(value) for key, value in facts.items()})
    program_ = program.record(setup_of(run, from_config(LLAMA), None, []), from_config(LLAMA), timeline.SIMULATED)
    events = timeline.unrolled(program_.ledger, timeline.SIMULATED, LAYERS, counted=0)
    step = _totals(events)[-len(events.step) - 1 :]
    assert events.top == step.index(max(step))
    assert max(step) == max(peak.total for peak in events.peaks if peak.phase != "load")
    assert events.requested == max(step)


def test_a_recomputed_layer_with_small_adapters_leaves_nothing() -> None:
    """Of LoRA with checkpointing, backward of each layer makes only blocks that it frees again; it frees the input that was kept."""
    facts = {"batch.micro_batch_size": 2, "batch.sequence_length": 2048, "objective": "causal_lm", **PRECISIONS["bf16"]}
    facts |= {**TUNINGS["lora"], **CHECKPOINTING["reentrant"]}
    run = TrainingRun("run.yaml", Span("run.yaml", 1), {key: fixed(value) for key, value in facts.items()})
    program_ = program.record(setup_of(run, from_config(LLAMA), None, []), from_config(LLAMA), timeline.SIMULATED)
    events = timeline.unrolled(program_.ledger, timeline.SIMULATED, LAYERS)
    assert len(events.closed) >= LAYERS
    for place, rest in events.closed:
        stretch = events.step[place : place + rest.events]
        made = {event for event in stretch if event > 0}
        assert {-event for event in stretch if event < 0} >= made
        assert [place for place, event in enumerate(stretch) if event < 0 and -event not in made] == [*rest.releases]


def test_what_cannot_be_repeated_is_simulated() -> None:
    """Qwen3.5 attends in full in every fourth layer: the layers around the middle do not allocate alike."""
    architecture = from_config(
        {
            "model_type": "qwen3_5_text",
            "hidden_size": 64,
            "intermediate_size": 176,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "num_hidden_layers": LAYERS,
            "vocab_size": 1000,
        }
    )
    facts: dict[str, Any] = {
        "batch.micro_batch_size": 2,
        "batch.sequence_length": 200,
        "objective": "causal_lm",
        "framework.name": "trl",
        "adapter.method": "lora",
        "adapter.r": 8,
        "adapter.dropout": 0.1,
        "adapter.target_modules": ("q_proj", "out_proj", "up_proj", "down_proj"),
        "quantization.method": "bnb_4bit",
        "quantization.compute_dtype": "float16",
        "checkpointing.enabled": False,
        "precision": "bf16-mixed",
        "model.dtype": "bfloat16",
        "adapter.dtype": "bfloat16",
        "loss.logits": "chunked",
        "trainer.outputs_fp32": True,
    }
    run = TrainingRun("run.yaml", Span("run.yaml", 1), {key: fixed(value) for key, value in facts.items()})
    setup = setup_of(run, architecture, None, [])
    few = program.record(setup, architecture, timeline.SIMULATED)
    with pytest.raises(timeline.NotUniform):
        timeline.unrolled(few.ledger, timeline.SIMULATED, LAYERS)
    assert estimate(run, architecture, None).allocated.expected > 0
