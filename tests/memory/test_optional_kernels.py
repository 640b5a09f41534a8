"""Kernels that a model takes where their package is installed: what they keep, counted from their source, and that nothing states them."""

from __future__ import annotations

from memlint.facts import TrainingRun, fixed
from memlint.memory.autograd import kept_for
from memlint.memory.estimate import estimate
from memlint.memory.families import delta_kernels, parts
from memlint.memory.machine import Machine, start
from memlint.memory.result import Estimate
from memlint.memory.tensor import Parameter, Storage, Tensor
from memlint.models import lookup
from memlint.source import Span

TOKENS, HEADS, DIM = 2048, 48, 128


def made(m: Machine, numel: int, itemsize: int = 2) -> Tensor:
    """A tensor that needs a gradient, of which nothing is kept yet."""
    return m.tape.record(m.new(numel, itemsize), (m.tape.leaf(m.new(1, 2)),), lambda g: (g,))


def kept(out: Tensor) -> int:
    """Bytes of the large tensors kept for backward."""
    return sum(storage.nbytes for storage in {id(s): s for s in kept_for(out)}.values() if storage.nbytes > 1024)


def test_the_delta_rule_keeps_queries_keys_values_and_a_matrix_of_each_chunk() -> None:
    m = start(1, TOKENS)
    q, k, v = (made(m, TOKENS * HEADS * DIM) for _ in range(3))
    out = delta_kernels.delta_rule(m, [q, k, v], made(m, TOKENS * HEADS, 4), made(m, TOKENS * HEADS), HEADS, DIM, DIM)
    # q, k, v and a row of 64 in 2 bytes each; two statistics and the running decay in 4; beta in 2: `ctx.save_for_backward`.
    assert kept(out) == TOKENS * HEADS * (3 * DIM * 2 + 64 * 2 + 3 * 4 + 2)


def test_the_convolution_and_the_norm_keep_their_inputs() -> None:
    m = start(1, TOKENS)
    weight = Parameter(Storage(m.ledger, 128), 64, 2, "conv1d", "conv", 0)
    assert kept(delta_kernels.convolution(m, made(m, TOKENS * 1024), weight)) == TOKENS * 1024 * 2
    x, gate = made(m, TOKENS * HEADS * DIM), made(m, TOKENS * HEADS * DIM)
    assert kept(delta_kernels.gated_norm(m, x, gate, weight, DIM)) == TOKENS * HEADS * (2 * DIM * 2 + 4)


def test_xielu_keeps_its_input() -> None:
    m = start(1, TOKENS)
    m.kernels = frozenset({"xielu"})
    slope = Parameter(Storage(m.ledger, 2), 1, 2, "alpha_p", "activation", 0)
    assert kept(parts.xielu(m, made(m, TOKENS * 1024), slope, slope)) == TOKENS * 1024 * 2


def estimated(**facts: object) -> Estimate:
    """Apertus 8B, or what is stated, with an adapter on all linears."""
    run = {
        "model.id": "swiss-ai/Apertus-8B-Instruct-2509", "model.dtype": "bfloat16", "precision": "bf16-mixed",
        "adapter.method": "lora", "adapter.r": 8, "adapter.target_modules": "all-linear", "batch.micro_batch_size": 1,
        "batch.sequence_length": 2048, "optimizer.name": "adamw_torch", "checkpointing.enabled": True, "loss.logits": "fused", **facts,
    }  # fmt: skip
    found = lookup(str(run["model.id"]))
    assert found.architecture is not None
    known = {key: fixed(value) for key, value in run.items()}
    return estimate(TrainingRun("x", Span("x", 1), known), found.architecture, None)


def test_the_estimate_spans_a_run_with_and_without_them() -> None:
    installed, either = estimated(kernels=["xielu"]), estimated()
    assert either.allocated.low == installed.allocated.low < installed.allocated.high < either.allocated.high
    assert any("may be installed" in sentence for sentence in either.assumptions)
    assert not any("may be installed" in sentence for sentence in installed.assumptions)


def test_axolotl_packs_no_samples_for_a_delta_rule_without_its_kernels() -> None:
    """`raise RuntimeError("Packed sequences require fla.modules.convolution.causal_conv1d ...")`."""
    run: dict[str, object] = {"model.id": "Qwen/Qwen3.5-4B", "framework.name": "axolotl"}
    packed, padded = estimated(**run, **{"batch.packing": True}), estimated(**run, **{"batch.packing": False})
    assert packed.allocated == estimated(**run, **{"batch.packing": True, "kernels": ["gated_delta"]}).allocated
    assert any("may be installed" in sentence for sentence in padded.assumptions)
    assert not any("may be installed" in sentence for sentence in packed.assumptions)
