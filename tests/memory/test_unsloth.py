"""What unsloth's kernels keep, and its losses by version; expected bytes are counted from its source by hand."""

from __future__ import annotations

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.gpus import find
from memlint.memory.estimate import estimate
from memlint.memory.result import Estimate
from memlint.models import lookup
from memlint.source import Span

TOKENS = 2 * 4096
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def estimated(card: str = "T4", **facts: object) -> Estimate:
    """TinyLlama (hidden 2048, keys of 256, feed-forward 5632, 22 layers) as unsloth's notebook trains it, without checkpointing."""
    run = {
        "model.id": "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "model.dtype": "float16", "model.attention": "xformers",
        "precision": "fp16-mixed", "quantization.method": "bnb_4bit", "quantization.double_quant": True, "adapter.method": "lora",
        "adapter.r": 32, "adapter.target_modules": LINEARS, "batch.micro_batch_size": 2, "batch.sequence_length": 4096,
        "batch.packing": True, "batch.gradient_accumulation_steps": 4, "optimizer.name": "adamw_bnb_8bit",
        "checkpointing.enabled": False, "framework.name": "unsloth",
        "loss.logits": "full", "loss.kernel": "unsloth_ce", "kernels": ["rms_norm", "rope", "swiglu", "lora"], **facts,
    }  # fmt: skip
    found = lookup(str(run["model.id"]))
    assert found.architecture is not None
    return estimate(
        TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in run.items()}), found.architecture, find(card)
    )


def peak(estimate: Estimate, phase: str) -> int:
    """The most that is allocated in a phase."""
    return next(instant.peak_bytes for instant in estimate.timeline if instant.phase == phase)


def kept(estimate: Estimate, phase: str) -> int:
    """Bytes of weights, gradients and optimizer states in a phase."""
    components = next(instant.components for instant in estimate.timeline if instant.phase == phase)
    return sum(components.get(name, 0) for name in ("weights", "adapters", "gradients", "optimizer_states"))


def logits(estimate: Estimate) -> int:
    """Bytes of logits and what is made of them, at the loss."""
    return next(instant.components["logits"] for instant in estimate.timeline if instant.phase == "loss")


def per_layer(phase: str, card: str = "T4", **facts: object) -> float:
    """Bytes per token that one more layer adds to what is allocated, its weights and optimizer states apart."""
    deep, shallow = (estimated(card, **{"model.layers_override": layers, **facts}) for layers in (20, 10))
    static = kept(deep, phase) - kept(shallow, phase)
    return (peak(deep, phase) - peak(shallow, phase) - static) / 10 / TOKENS


def test_the_fused_kernels_keep_their_inputs_and_gate_and_up() -> None:
    # Of 2 bytes each: the inputs of two norms, of QKV and of the MLP, queries, keys and values of all heads, attention's result (which
    # is the input of the output projection): 8 x 2048; gate and up: 2 x 5632. Of 4: statistics of two norms, log-sum-exp of 32 heads.
    kept = 2 * (8 * 2048 + 2 * 5632) + 4 * (2 + 32)
    assert per_layer("forward", **{"framework.versions": {"transformers": "5.0"}}) == pytest.approx(kept, rel=0.003)


def test_dropout_on_the_adapter_keeps_layers_apart() -> None:
    # patch_peft_model leaves them alone: the down projection's input stays, and what dropout makes of every layer's input.
    assert per_layer("forward", **{"adapter.dropout": 0.05}) > 2 * (8 * 2048 + 3 * 5632)


def test_axolotls_kernels_take_dropout() -> None:
    # As above with keys and values of 256, which flash attention takes as they are; and of what dropout makes of three inputs 2 bytes,
    # of its masks 1.
    kept = 2 * (6 * 2048 + 2 * 256 + 2 * 5632) + 4 * (2 + 32) + 3 * 2048 * (2 + 1)
    facts = {"framework.name": "axolotl", "model.attention": "flash_attention_2", "adapter.dropout": 0.05, "loss.logits": "fused"}
    assert per_layer("forward", card="A100 80GB", **facts) == pytest.approx(kept, rel=0.003)


def test_keys_and_values_are_returned_and_copied_to_float32_with_the_logits() -> None:
    # Unsloth returns (K, V) of 256 each, in 2 bytes; accelerate's convert_to_fp32 makes copies of 4 bytes while the first are there.
    newest = per_layer("loss", **{"framework.versions": {"transformers": "5.0"}})
    assert per_layer("loss", **{"framework.versions": {"unsloth": "2024.1"}}) - newest == pytest.approx(
        2 * 256 * (2 + 4), rel=0.01
    )


def test_whole_logits_date_the_run_before_the_fused_loss() -> None:
    assert estimated().allocated.expected == estimated(**{"framework.versions": {"unsloth": "2025.7"}}).allocated.expected


def test_labels_are_shifted_not_logits() -> None:
    # 2 bytes per logit for the cross entropy, 4 for accelerate's copy of the output.
    run = estimated(**{"framework.versions": {"unsloth": "2024.1"}})
    assert logits(run) == pytest.approx(TOKENS * 32_000 * (2 + 4), rel=0.001)


def test_the_fused_loss_takes_chunks_as_large_as_4_gib_of_float32_logits() -> None:
    # 8192 x 32000 x 4 bytes are 0.98 GiB: one chunk, with its logits and their gradient in 2 bytes each.
    run = estimated(**{"loss.logits": "fused", "loss.kernel": "torch_ce"})
    whole = TOKENS * 32_000 * 2 * 2
    assert logits(run) == pytest.approx(whole, rel=0.08)
    # Eight times the tokens are 7.8 GiB: exactly 1.95 chunks, rounded up to four.
    long = estimated("H100", **{"loss.logits": "fused", "loss.kernel": "torch_ce", "batch.micro_batch_size": 16})
    assert logits(long) == pytest.approx(2 * whole, rel=0.16)
