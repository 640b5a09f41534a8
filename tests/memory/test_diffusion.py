"""What the memory program keeps for backward, against what diffusers' networks keep (tests/oracle/diffusion.json)."""

from __future__ import annotations

import json
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.program import Program, record
from memlint.memory.setup import setup_of
from memlint.models.config import from_config
from memlint.source import Span

RECORD = json.loads((Path(__file__).parents[1] / "oracle" / "diffusion.json").read_text())
CASES = [(name, regime) for name, entry in RECORD["networks"].items() for regime in entry["regimes"]]
BATCH, TEXT = RECORD["shape"]["batch"], RECORD["shape"]["text"]


@cache
def program(name: str, regime: str) -> Program:
    """The memory program of one case of the record."""
    config = RECORD["networks"][name]["config"]
    weights, _, _, rest = regime.split(".", 3)
    tuning, checkpointing = rest.rsplit(".", 1)
    dtype, _, autocast = weights.partition("+")
    facts: dict[str, Any] = {
        "model.dtype": dtype,
        "precision": "bf16-mixed" if autocast else {"float32": "fp32", "bfloat16": "bf16-true"}[dtype],
        "batch.micro_batch_size": BATCH,
        "batch.image_size": 8 * config.get("sample_size", 0),
        "batch.latent_tokens": 0 if "sample_size" in config else RECORD["shape"]["latents"],
        "batch.text_tokens": TEXT,
        "checkpointing.enabled": checkpointing != "off",
        "checkpointing.use_reentrant": False,
        "objective": "diffusion",
        "optimizer.name": "sgd",
        "adapter.method": "none",
        "framework.name": "transformers",
        "trainer.outputs_fp32": False,
    }
    if tuning != "full":
        facts |= {
            "adapter.method": "lora",
            "adapter.r": 8,
            "adapter.target_modules": ["to_k", "to_q", "to_v", "to_out.0"],
            "adapter.dtype": tuning.split("-")[1],
        }
    run = TrainingRun("record", Span("record", 1, 1, 1, 1), {k: fixed(v) for k, v in facts.items()})
    architecture = from_config({"model_type": name.partition("-")[0], **config})
    setup = setup_of(run, architecture, None, [])
    return record(setup, architecture, setup.layers)


def kept(name: str, regime: str) -> list[int]:
    """Bytes between forward and backward and the two peaks, weights and batch left out."""
    ledger = program(name, regime).ledger
    size = 4 if regime.startswith("float32") else 2
    config = RECORD["networks"][name]["config"]
    if "sample_size" in config:
        latents = (BATCH, 4, config["sample_size"], config["sample_size"])
    else:
        latents = (BATCH, RECORD["shape"]["latents"], config["in_channels"])
    text = (BATCH, TEXT, config.get("cross_attention_dim", config.get("joint_attention_dim")))
    inputs = sum(-(-prod(shape) * size // 512) * 512 for shape in (latents, text))
    tokens = 1 if "sample_size" in config else RECORD["shape"]["latents"] + TEXT
    inputs += 2 * -(-8 * BATCH * tokens // 512) * 512  # what stands for ids and labels
    target = prod(latents) * size if size == 4 else 0  # it needs no cast; here it is there between loss and backward only
    begin = {phase: next(at for at, p, _ in ledger.segments if p == phase) for phase in ("forward", "backward", "optimizer_step")}
    live, held, forward, backward = 0, 0, 0, 0
    for position, event in enumerate(ledger.events[: begin["optimizer_step"]]):
        if position == begin["forward"]:
            live = 0
        if position == begin["backward"]:
            held = live
        live += ledger.sizes[event] if event > 0 else -ledger.sizes[-event]
        if begin["forward"] <= position < begin["backward"]:
            forward = max(forward, live)
        if position >= begin["backward"]:
            backward = max(backward, live)
    return [held - inputs - target, forward - inputs, backward - inputs]


@pytest.mark.parametrize(("name", "regime"), CASES)
def test_a_network_keeps_what_the_real_class_keeps(name: str, regime: str) -> None:
    """Within 1 %, and the peaks of forward and backward, too."""
    assert kept(name, regime) == pytest.approx(RECORD["networks"][name]["regimes"][regime], rel=0.01)


@pytest.mark.parametrize("name", RECORD["networks"])
def test_parameters_are_counted_exactly(name: str) -> None:
    """Of full fine-tuning."""
    found = program(name, next(iter(RECORD["networks"][name]["regimes"])))
    assert sum(parameter.logical for parameter in found.parameters) == RECORD["networks"][name]["parameters"]
