"""What attention keeps by version: multi-query models whose one key head is left to broadcasting."""

from __future__ import annotations

from itertools import pairwise

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.program import record
from memlint.memory.setup import setup_of
from memlint.models import lookup
from memlint.source import Span

HEADS, LENGTH = 8, 1024
FALCON = {
    "model_type": "falcon", "hidden_size": 64, "num_attention_heads": HEADS, "multi_query": True, "num_kv_heads": 1, "vocab_size": 512,
    "parallel_attn": True, "bias": False, "new_decoder_architecture": False,
}  # fmt: skip
RUN = {
    "model.dtype": "bfloat16", "precision": "bf16-true", "model.attention": "sdpa", "objective": "causal_lm", "batch.micro_batch_size": 1,
    "batch.sequence_length": LENGTH, "batch.packing": True, "optimizer.name": "adamw_torch_fused",
}  # fmt: skip


def kept_per_score(framework: str, versions: dict[str, str]) -> float:
    """Bytes that one block more keeps until backward, per element of its attention scores."""

    def at_the_loss(layers: int) -> int:
        facts = RUN | {"framework.name": framework, "framework.versions": versions}
        run = TrainingRun("test", Span("test", 1), {key: fixed(value) for key, value in facts.items()})
        architecture = lookup(None, config=FALCON | {"num_hidden_layers": layers}).architecture
        assert architecture is not None
        ledger = record(setup_of(run, architecture, None, []), architecture, layers).ledger
        begins = next(begin for begin, phase, _ in ledger.segments if phase == "loss")
        return sum(
            ledger.sizes[event] if event > 0 else -ledger.sizes[-event]
            for event in ledger.events[:begins]
            if ledger.components[abs(event)] == "activations"
        )

    return (at_the_loss(4) - at_the_loss(3)) / (HEADS * LENGTH**2)


@pytest.mark.parametrize(
    ("framework", "versions", "size"),
    [
        ("litgpt", {"lit-gpt": "2023-09", "torch": "2.1.0"}, 2),
        ("litgpt", {"lit-gpt": "8641822", "torch": "2.1.0+cu121"}, 2),  # of 16 October 2023
        ("litgpt", {"lit-gpt": "2023-11", "torch": "2.1.0"}, 0),  # 50b1974 of 24 October expands keys and values: flash attention
        ("litgpt", {}, 0),
        ("transformers", {"transformers": "4.57.3", "torch": "2.4.1"}, 2),
        ("transformers", {"transformers": "4.57.3", "torch": "2.6.0"}, 4),
    ],
)
def test_broadcast_key_heads_take_the_math_path(framework: str, versions: dict[str, str], size: int) -> None:
    """No fused kernel takes fewer key heads than query heads without being told: softmax's result is kept whole, in the stream's dtype
    before torch 2.5, in float32 since. What is linear in the length is below a tenth of that here."""
    assert size <= kept_per_score(framework, versions) < size + 0.4


LLAMA = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8,
    "vocab_size": 32000, "num_hidden_layers": 2, "tie_word_embeddings": False,
}  # fmt: skip
PACKED = RUN | {
    "quantization.method": "bnb_4bit", "quantization.compute_dtype": "bfloat16", "adapter.method": "lora", "adapter.r": 8,
    "adapter.target_modules": ["q_proj"], "batch.sequence_length": 48,
}  # fmt: skip
HEAD = 32000 * 512


def allocations(facts: dict[str, object]) -> list[tuple[int, bool]]:
    """The sizes of what a step makes and frees, in order; True for what it makes."""
    run = TrainingRun("test", Span("test", 1), {key: fixed(value) for key, value in (PACKED | facts).items()})
    architecture = lookup(None, config=LLAMA).architecture
    assert architecture is not None
    ledger = record(setup_of(run, architecture, None, []), architecture, 2).ledger
    return [(ledger.sizes[abs(event)], event > 0) for event in ledger.events]


@pytest.mark.parametrize(
    ("facts", "copies"),
    [
        # bitsandbytes 0.42 `Params4bit.cuda`: `self.data.contiguous().half()`; 0.43 leaves the dtype
        ({"framework.name": "transformers", "framework.versions": {"bitsandbytes": "0.42.0"}}, 2),
        ({"framework.name": "transformers", "framework.versions": {"bitsandbytes": "0.43.0"}}, 1),
        ({"framework.name": "transformers", "model.dtype": "float16"}, 2),
        # Lightning 2.1 and 2.4 `precision/bitsandbytes.py`: `weight.contiguous().to(device=device, dtype=torch.half)`
        ({"framework.name": "litgpt", "framework.versions": {"bitsandbytes": "0.45.0"}}, 2),
    ],
)
def test_weights_packed_from_another_dtype_are_unpacked_twice(facts: dict[str, object], copies: int) -> None:
    """`F.dequantize_4bit(B, quant_state).to(A.dtype)`: in the dtype they were packed from, then in that of the input."""
    weight = 1024 * 512 * 2  # of the feed-forward part: two layers, three matrices, forward and backward
    made = [index for index, (size, new) in enumerate(allocations(facts)) if new and size == weight]
    pairs = [index for index, after in pairwise(made) if after == index + 1]
    assert len(pairs) >= 12 * (copies - 1)
    assert copies == 2 or not pairs


@pytest.mark.parametrize(("framework", "packed"), [("litgpt", True), ("transformers", False)])
def test_fabric_packs_the_head_too(framework: str, packed: bool) -> None:
    """Its plugin replaces every `torch.nn.Linear` and refuses to leave one out (`module_init_context`)."""
    sizes = [size for size, new in allocations({"framework.name": framework}) if new]
    assert (HEAD // 2 in sizes) is packed


@pytest.mark.parametrize(
    ("model", "version", "parameters"),
    [
        ("google/flan-t5-base", "4.57.3", 222_903_552 + 32_128 * 768),  # 247,577,856: its checkpoint has a head of its own
        ("google/flan-t5-base", "5.0.0", 222_903_552),
        ("google-t5/t5-base", "4.57.3", 222_903_552),
    ],
)
def test_heads_of_t5_are_tied_by_version(model: str, version: str, parameters: int) -> None:
    """transformers 4 goes by the configuration, 5 ties every one of them."""
    facts = RUN | {"objective": "seq2seq_lm", "framework.name": "transformers", "framework.versions": {"transformers": version}}
    run = TrainingRun("test", Span("test", 1), {key: fixed(value) for key, value in facts.items()})
    architecture = lookup(model).architecture
    assert architecture is not None
    setup = setup_of(run, architecture, None, [])
    assert sum(p.logical for p in record(setup, architecture, setup.layers).parameters) == parameters


@pytest.mark.parametrize("model", ["bigscience/bloom-560m", "mosaicml/mpt-7b", "EleutherAI/gpt-neo-125m", "openai/gpt-oss-20b"])
def test_classes_without_sdpa_attend_eagerly(model: str) -> None:
    """Whatever is asked for (`_supports_sdpa` is False, tests/oracle/test_defaults.py)."""
    run = TrainingRun(
        "test", Span("test", 1), {key: fixed(value) for key, value in (RUN | {"framework.name": "transformers"}).items()}
    )
    architecture = lookup(model).architecture
    assert architecture is not None
    assert setup_of(run, architecture, None, []).attention == "eager"
