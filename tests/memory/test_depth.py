"""A shorter model of the same pattern gives, by repetition, the very events of the whole one."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.depth import kinds_of, pattern, plans
from memlint.memory.events import Events
from memlint.memory.program import record
from memlint.memory.setup import Setup, setup_of
from memlint.memory.timeline import NotUniform, unrolled
from memlint.models import from_config
from memlint.models.architecture import Architecture
from memlint.source import Span

_SIZES = {"hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000}
_WINDOWS = {"layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5, "num_hidden_layers": 30, "sliding_window": 64}
MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "qwen3_5_text": ({**_SIZES, "num_hidden_layers": 24}, 8),
    "gemma3_text": ({**_SIZES, **_WINDOWS, "head_dim": 32}, 12),
    "gemma4_text": ({**_SIZES, **_WINDOWS, "head_dim": 32, "global_head_dim": 64, "num_kv_shared_layers": 0}, 12),
    "deepseek_v3": ({**_SIZES, "num_hidden_layers": 16, "first_k_dense_replace": 3, "n_routed_experts": 8, "n_group": 2}, 8),
    "gpt_oss": ({**_SIZES, "num_hidden_layers": 18, "num_local_experts": 4, "sliding_window": 64}, 5),  # eager: windows are masks
    "whisper": ({"d_model": 128, "encoder_layers": 9, "decoder_layers": 8}, 5),
    "t5": ({"d_model": 128, "num_layers": 9, "num_decoder_layers": 8}, 5),
    "clip": ({"text_config": {"num_hidden_layers": 8}, "vision_config": {"num_hidden_layers": 9}}, 5),
}
"""Configurations and how many layers of them are simulated (of each stack)."""

OBJECTIVES = {"whisper": "speech_seq2seq", "t5": "seq2seq_lm", "clip": "contrastive"}
TUNINGS: dict[str, dict[str, Any]] = {
    "full": {"adapter.method": "none"},
    "lora": {"adapter.method": "lora", "adapter.target_modules": "all-linear", "adapter.dropout": 0.05},
}
CHECKPOINTING: dict[str, dict[str, Any]] = {
    "off": {"checkpointing.enabled": False},
    "reentrant": {"checkpointing.enabled": True, "checkpointing.use_reentrant": True},
    "lazy": {"checkpointing.enabled": True, "checkpointing.use_reentrant": False},
}


def setup_for(kind: str, config: dict[str, Any], **facts: Any) -> tuple[Setup, Architecture]:
    """A run of this model on one card."""
    known = {
        "batch.micro_batch_size": 2,
        "batch.sequence_length": 64 if kind == "clip" else 128,
        "precision": "bf16-mixed",
        "model.dtype": "bfloat16",
        "framework.name": "transformers",
        "objective": OBJECTIVES.get(kind, "causal_lm"),
        **facts,
    }
    run = TrainingRun("run.yaml", Span("run.yaml", 1), {key: fixed(value) for key, value in known.items()})
    architecture = from_config({"model_type": kind, **config})
    return setup_of(run, architecture, None, []), architecture


def repeated(setup: Setup, architecture: Architecture) -> tuple[int, Events]:
    """The layers that the shorter model has, and its events at full depth."""
    for few in plans(setup, architecture):
        shorter = few.architecture is not architecture
        own = setup._replace(layers=few.layers, repeats=few.repeats) if shorter else setup
        try:
            program = record(own, few.architecture, few.layers)
            return few.layers, unrolled(program.ledger, few.layers, setup.layers, few.repeats, counted=0)
        except NotUniform:
            pass
    raise AssertionError("no plan holds")


@pytest.mark.parametrize(("kind", "tuning", "checkpointing"), list(product(MODELS, TUNINGS, CHECKPOINTING)))
def test_a_shorter_model_gives_the_same_events(kind: str, tuning: str, checkpointing: str) -> None:
    """Every allocation and free, in order and size, and the peaks with what they consist of."""
    config, layers = MODELS[kind]
    setup, architecture = setup_for(kind, config, **TUNINGS[tuning], **CHECKPOINTING[checkpointing])
    simulated, few = repeated(setup, architecture)
    program = record(setup, architecture, setup.layers)
    whole = unrolled(program.ledger, setup.layers, setup.layers, counted=0)
    assert simulated == layers
    assert few == whole


@pytest.mark.parametrize("checkpointing", CHECKPOINTING)
def test_layers_that_share_keys_and_values_are_a_stack_of_their_own(checkpointing: str) -> None:
    """Gemma 4: the last 18 of 42 layers use keys and values of earlier ones: 12 of 24 and 12 of 18 are simulated."""
    windows = {**_WINDOWS, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 7, "num_hidden_layers": 42}
    config = {**_SIZES, **windows, "head_dim": 32, "global_head_dim": 64, "num_kv_shared_layers": 18}
    setup, architecture = setup_for("gemma4_text", {**config, "hidden_size_per_layer_input": 16}, **CHECKPOINTING[checkpointing])
    simulated, few = repeated(setup, architecture)
    program = record(setup, architecture, 42)
    whole = unrolled(program.ledger, 42, 42, counted=0)
    assert simulated == 24
    assert few == whole


def test_a_pattern_has_a_beginning_and_a_period() -> None:
    """aabcbcbc: two layers, then a period of two - or one before, for `a` is followed by its like once only."""
    assert pattern("aaaaaa") == (0, 1)
    assert pattern("abababab") == (0, 2)
    assert pattern("xxababab") == (2, 2)
    assert pattern("dddeeeeeee") == (3, 1)
    assert pattern("abcdefgh") is None


def test_kinds_are_read_off_every_list_of_layers() -> None:
    """Also those of the text part; a list of another length says nothing about layers."""
    config = {"first_k_dense_replace": 1, "text_config": {"layer_types": ["a", "b", "a"], "sizes": [1, 2]}}
    assert len(set(kinds_of(config, 3))) == 3
    assert len(set(kinds_of({"layer_types": ["a", "a", "a"]}, 3))) == 1
