"""What loading needs before the first step, counted by hand from what axolotl and transformers do."""

from __future__ import annotations

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.estimate import estimate
from memlint.memory.result import Estimate
from memlint.models.config import from_config
from memlint.source import Span

HIDDEN, LAYERS, INNER, VOCABULARY = 1024, 6, 4096, 128_000
TABLE = VOCABULARY * HIDDEN
CONFIG = {
    "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "intermediate_size": INNER, "vocab_size": VOCABULARY,
    "num_attention_heads": 8, "num_key_value_heads": 8, "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip
RUN = {
    "framework.name": "axolotl", "model.dtype": "bfloat16", "precision": "bf16-mixed", "model.attention": "flash_attention_2",
    "quantization.method": "bnb_4bit", "adapter.method": "lora", "adapter.target_modules": "all-linear", "batch.packing": True,
    "batch.micro_batch_size": 1, "batch.sequence_length": 512, "optimizer.name": "adamw_bnb_8bit", "checkpointing.enabled": True,
    "loss.logits": "fused", "loss.kernel": "cut_cross_entropy", "objective": "causal_lm",
}  # fmt: skip
TRL: dict[str, object] = {"framework.name": "trl"}


def estimated(changes: dict[str, object] | None = None, tied: bool = False, config: dict[str, object] | None = None) -> Estimate:
    facts = {key: fixed(value) for key, value in {**RUN, **(changes or {})}.items()}
    return estimate(TrainingRun("x", Span("x", 1), facts), from_config({**CONFIG, "tie_word_embeddings": tied, **(config or {})}))


def at(phase: str, found: Estimate) -> int:
    return next(instant.peak_bytes for instant in found.timeline if instant.phase == phase)


@pytest.mark.parametrize("tied", [False, True])
def test_axolotl_raises_embedding_and_head_to_float32_while_their_originals_are_there(tied: bool) -> None:
    """`_convert_embedding_modules_dtype`: of two tables one is wide (2 bytes more per weight) when the other's wide copy (4) is made;
    a tied one is 4 bytes more while it is copied. transformers' own Trainer leaves both as they are."""
    more = at("load", estimated(tied=tied)) - at("load", estimated(TRL, tied))
    assert more == (4 if tied else 6) * TABLE
    assert at("load", estimated({"model.load_upcast": False}, tied)) == at("load", estimated(TRL, tied))


def test_what_loading_reserves_is_told_but_not_what_steps_do() -> None:
    """axolotl empties the cache and resets the peaks before it trains."""
    found, other = estimated(), estimated(TRL)
    assert found.reserved.expected == other.reserved.expected < at("load", found) <= found.reserved.high
    assert found.required.expected == at("load", found)
    assert any(sentence.startswith("loading reserves ") for sentence in found.assumptions)


FULL: dict[str, object] = {
    "quantization.method": "none", "adapter.method": "none", "loss.logits": "full", "loss.kernel": "torch_ce",
    "optimizer.name": "adamw_torch_fused",
}  # fmt: skip
"""Everything is trained."""


def test_without_an_adapter_they_stay_raised_where_attention_needs_no_half() -> None:
    """`should_convert`: for FlashAttention's sake, or cut-cross-entropy's. The stream that the embedding makes is then float32, too."""
    wide, narrow = estimated({**FULL, "model.attention": "sdpa"}), estimated(FULL)
    raised = 2 * TABLE + (2 * LAYERS + 1) * HIDDEN
    assert at("load", wide) - at("load", narrow) == pytest.approx(2 * raised, abs=16384)
    # At the end of a step weights, gradients and two moments are there, 2 bytes wider; before, the inputs of checkpointed layers.
    assert at("optimizer_step", wide) - at("optimizer_step", narrow) == pytest.approx(2 * 4 * raised, abs=1 << 20)
    stream = 2 * 512 * HIDDEN * LAYERS
    assert stream <= at("forward", wide) - at("forward", narrow) - 2 * 3 * raised < 3 * stream
    cut = {"loss.logits": "fused", "loss.kernel": "cut_cross_entropy", "model.attention": "sdpa"}
    assert at("load", estimated({**FULL, **cut})) == at("load", narrow)
    assert at("load", estimated({**FULL, **TRL, "model.attention": "sdpa"})) == at("load", narrow)


def test_fsdp_does_not_raise_them() -> None:
    """`if not self.is_fsdp_enabled`."""
    sharded: dict[str, object] = {"parallel.strategy": "fsdp2", "parallel.gpus": 2}
    assert at("load", estimated(sharded)) == at("load", estimated({**sharded, **TRL}))


@pytest.mark.parametrize(("version", "share"), [("4.49", 0.0), ("4.50.3", 1.0), ("4.51.0", 0.5), ("4.57.1", 0.5), ("5.24", 0.0)])
def test_what_is_left_of_a_first_block_stays_reserved(version: str, share: float) -> None:
    """`caching_allocator_warmup`: `torch.empty(byte_count // factor, dtype=torch.float16)`, where the factor is 2 in 4.50 and 4 (for
    weights that are quantised) from 4.51 on. Here the packed model and a short step take less."""
    layers, inner, vocabulary = 24, 16 * HIDDEN, 1000
    deep: dict[str, object] = {"num_hidden_layers": layers, "intermediate_size": inner, "vocab_size": vocabulary}
    weights = 2 * vocabulary * HIDDEN + layers * (4 * HIDDEN**2 + 3 * HIDDEN * inner + 2 * HIDDEN) + HIDDEN
    found = estimated({**TRL, "framework.versions": {"transformers": version}}, config=deep)
    block = int(share * 2 * weights)
    assert found.required.expected < weights
    if block:
        # Small blocks, such as the statistics of packed weights (80 MiB), have segments of their own.
        assert block < found.reserved.expected < block + (256 << 20)
    else:
        assert found.reserved.expected < weights


def test_transformers_5_0_to_5_3_may_load_everything_before_it_is_packed() -> None:
    """huggingface/transformers#43032: a model that took 9 GB with 4.48 needed more than 15 GB; two bytes per weight are the most."""
    weights = 2 * TABLE + LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * INNER + 2 * HIDDEN) + HIDDEN
    found = {v: estimated({**TRL, "framework.versions": {"transformers": v}}) for v in ("4.57", "5.3.0", "5.4.0", "5.24.0")}
    assert found["5.3.0"].required.high == found["5.3.0"].reserved.high == 2 * weights
    assert any("before bitsandbytes packs them" in sentence for sentence in found["5.3.0"].assumptions)
    assert found["5.3.0"].required.expected == found["5.4.0"].required.expected
    for version in ("4.57", "5.4.0", "5.24.0"):
        assert found[version].required.high < 2 * weights
