"""What PEFT's tuners keep and allocate, against PEFT itself (tests/oracle/tuners.json)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory import CannotEstimate
from memlint.memory.estimate import estimate
from memlint.memory.program import record
from memlint.memory.setup import setup_of
from memlint.models import lookup
from memlint.models.config import from_config
from memlint.source import Span
from tests.memory.test_saved_activations import kept

RECORD = json.loads((Path(__file__).parents[1] / "oracle" / "tuners.json").read_text())
CASES = RECORD["cases"]

INEXACT = {"adalora": 0.02}
"""Relative errors of what one layer keeps where it is above 1 %: of AdaLoRA's regulariser, the half copies of its factors are left out."""

INEXACT_PEAKS = {"osf": 0.025}
"""Relative errors of the peaks where they are above 2 %."""


class Figures(NamedTuple):
    """The numbers of the record (its `fields`)."""

    trainable: int
    adapters: int
    held: int
    forward_peak: int
    backward_peak: int


def figures(case: dict[str, Any], layers: int) -> Figures:
    """What memlint's program of this case says."""
    return _figures(CASES.index(case), layers)


@cache
def _figures(index: int, layers: int) -> Figures:
    case = CASES[index]
    biases = {"attention_bias": True, "mlp_bias": True} if case["biased"] else {}
    architecture = from_config({"model_type": "llama", **RECORD["config"], **biases, "num_hidden_layers": layers})
    facts = {
        "model.dtype": "bfloat16",
        "model.attention": "sdpa",
        "precision": "bf16-mixed" if "autocast" in case["regime"] else "bf16-true",
        "batch.micro_batch_size": RECORD["shape"]["batch"],
        "batch.sequence_length": RECORD["shape"]["sequence"],
        "batch.packing": True,
        "checkpointing.enabled": "checkpointed" in case["regime"],
        "checkpointing.use_reentrant": False,
        "objective": "causal_lm",
        "optimizer.name": "sgd",
        "adapter.method": case["method"],
        "adapter.target_modules": RECORD["targets"],
        "adapter.config": case["options"],
        "framework.name": "transformers",
        "framework.versions": RECORD["versions"],
        "trainer.outputs_fp32": False,
    }
    run = TrainingRun("record", Span("record", 1, 1, 1, 1), {key: fixed(value) for key, value in facts.items()})
    program = record(setup_of(run, architecture, None, []), architecture, layers)
    ledger = program.ledger
    loaded = next(begin for begin, phase, _ in ledger.segments if phase == "buffers")
    adapters = sum(
        ledger.sizes[event] for event in ledger.events[:loaded] if event > 0 and ledger.components[event] == "adapters"
    )
    trainable = sum(parameter.numel for parameter in program.parameters if parameter.node is not None)
    return Figures(trainable, adapters, *kept(ledger))


def name(case: dict[str, Any]) -> str:
    """A readable test id."""
    options = ",".join(f"{key}={value}" for key, value in case["options"].items() if not isinstance(value, dict))
    return f"{case['method']}-{options}-{case['regime']}{'-biased' if case['biased'] else ''}"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_parameters_are_counted_exactly(case: dict[str, Any]) -> None:
    """Trained elements, and the bytes of all that PEFT adds to the model (frozen banks and buffers, too; the blocks of AdaMSS's clusters
    depend on the weights)."""
    for layers, real in zip((2, 3), case["fields"], strict=True):
        ours = figures(case, layers)
        assert ours.trainable == real[0]
        assert ours.adapters == pytest.approx(real[1], rel=0.01 if case["method"] == "adamss" else 0)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_one_layer_keeps_what_the_real_layer_keeps(case: dict[str, Any]) -> None:
    """Within 1 % (three layers minus two)."""
    two, three = case["fields"]
    ours = figures(case, 3).held - figures(case, 2).held
    assert ours == pytest.approx(three[2] - two[2], rel=INEXACT.get(case["method"], 0.01))


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_peaks_of_forward_and_backward(case: dict[str, Any]) -> None:
    """Within 2 %, at three layers."""
    ours, real, rel = figures(case, 3), case["fields"][1], INEXACT_PEAKS.get(case["method"], 0.02)
    assert ours.forward_peak == pytest.approx(real[3], rel=rel)
    assert ours.backward_peak == pytest.approx(real[4], rel=rel)


PUBLISHED = {
    "adalora": ({"init_r": 64}, 18_353_664),
    "deft": ({"r": 32}, 9_175_040),
    "delora": ({"r": 32}, 9_175_096),
    "fourierft": ({"n_frequency": 5000}, 280_000),
    "frod": ({"sparse_rate": 0.02}, 10_741_640),
    "glora": ({"config_A_B": "vector", "config_C": "vector", "config_D_E": "constant"}, 229_376),
    "hira": ({"r": 32}, 9_175_040),
    "lora": ({"r": 64}, 18_350_080),
    "miss": ({"r": 64, "mini_r": 64, "init_weights": "mini"}, 229_376),
    "oft": ({"r": 32}, 8_171_520),
    "peanut": ({"r": 32}, 7_340_032),
    "shira": ({"r": 32}, 9_175_040),
    "tinylora": ({"r": 2, "u": 64}, 3_584),
    "unilora": ({"r": 32, "theta_d_length": 256}, 256),
    "vblora": ({"r": 4}, 1_212_416),
    "adaption_prompt": ({"adapter_len": 100, "adapter_layers": 28}, 8_601_628),
    "prompt_tuning": ({"num_virtual_tokens": 200}, 614_400),
    "p_tuning": ({"num_virtual_tokens": 20, "encoder_hidden_size": 3072}, 28_382_208),
    "trainable_tokens": ({"token_indices": [128_000, 128_001]}, 6_144),
}
"""Trainable parameters of Llama-3.2-3B with query and value projections adapted, as printed by PEFT's own benchmark
(huggingface/peft@5d602fdbff, `method_comparison/MetaMathQA/results`)."""


def llama(method: str, options: dict[str, Any], **facts: Any) -> TrainingRun:
    """A run on Llama-3.2-3B."""
    given = {
        "model.id": "meta-llama/Llama-3.2-3B",
        "model.dtype": "bfloat16",
        "precision": "bf16-true",
        "batch.micro_batch_size": 1,
        "batch.sequence_length": 128,
        "adapter.method": method,
        "adapter.target_modules": ["q_proj", "v_proj"],
        "adapter.config": options,
        "framework.versions": {"peft": "0.19.2.dev0"},
        **facts,
    }
    return TrainingRun("published", Span("published", 1, 1, 1, 1), {key: fixed(value) for key, value in given.items()})


@pytest.mark.parametrize("method", PUBLISHED)
def test_the_published_number_of_trained_parameters(method: str) -> None:
    """At full depth, what all layers share counted once."""
    options, published = PUBLISHED[method]
    architecture = lookup("meta-llama/Llama-3.2-3B").architecture
    assert architecture is not None
    assert estimate(llama(method, options), architecture, None).trainable_parameters == published


@pytest.mark.parametrize("method", ["loha", "lokr", "fourierft", "hra", "glora", "vblora", "osf", "frod"])
def test_methods_that_peft_has_no_packed_layer_for(method: str) -> None:
    """PEFT 0.21.2 multiplies their base weight as it is, which bitsandbytes' packed one cannot be."""
    architecture = lookup("meta-llama/Llama-3.2-3B").architecture
    assert architecture is not None
    with pytest.raises(CannotEstimate, match=f"no {method} layer"):
        estimate(llama(method, {}, **{"quantization.method": "bnb_4bit"}), architecture, None)


def test_a_dense_change_of_a_packed_weight_unpacks_it() -> None:
    """HiRA multiplies the whole base weight element by element (`hira/bnb.py`): each layer keeps both for backward."""
    architecture = lookup("meta-llama/Llama-3.2-3B").architecture
    assert architecture is not None
    packed = {"quantization.method": "bnb_4bit"}
    plain, dense = (estimate(llama(method, {"r": 8}, **packed), architecture, None) for method in ("lora", "hira"))
    weights = 28 * (3072 * 3072 + 3072 * 1024)
    # the unpacked bfloat16 weight (for the product's gradient) and the float32 product (for the input's)
    assert dense.allocated.expected - plain.allocated.expected == pytest.approx(weights * (2 + 4), rel=0.05)


@pytest.mark.parametrize("options", [{"block_size": "many"}, {"block_size": 0}, {"block_size": [4]}])
def test_options_that_fit_no_layer_are_said(options: dict[str, Any]) -> None:
    """What PEFT itself would refuse is no traceback."""
    architecture = lookup("meta-llama/Llama-3.2-3B").architecture
    assert architecture is not None
    with pytest.raises(CannotEstimate, match=r"adapter\.config"):
        estimate(llama("c3a", options), architecture, None)
