"""The canonical keys: `--set`, spellings, and what the published tables of keys list."""

from __future__ import annotations

import pytest

from memlint.facts.keys import KEYS, check, normalise, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch.micro_batch_size=2", ("batch.micro_batch_size", 2)),
        ("batch.sequence_length=4_096", ("batch.sequence_length", 4096)),
        (" model.id = meta-llama/Llama-3.1-8B ", ("model.id", "meta-llama/Llama-3.1-8B")),
        ("checkpointing.enabled=yes", ("checkpointing.enabled", True)),
        ("checkpointing.enabled=False", ("checkpointing.enabled", False)),
        ("optimizer.name=adamw_8bit", ("optimizer.name", "adamw_bnb_8bit")),
        ("optimizer.name=paged_adamw", ("optimizer.name", "paged_adamw_32bit")),
        ("model.dtype=torch.bfloat16", ("model.dtype", "bfloat16")),
        ("model.dtype=fp16", ("model.dtype", "float16")),
        ("model.attention=fa2", ("model.attention", "flash_attention_2")),
        ("parallel.strategy=FSDP", ("parallel.strategy", "fsdp1")),
        ("framework.name=hf_trainer", ("framework.name", "transformers")),
        ("adapter.target_modules=q_proj, v_proj", ("adapter.target_modules", ["q_proj", "v_proj"])),
        ("adapter.target_modules=[q_proj]", ("adapter.target_modules", ["q_proj"])),
        ("adapter.target_modules=all", ("adapter.target_modules", "all-linear")),
        ("adapter.dropout=0.05", ("adapter.dropout", 0.05)),
        ("hardware.gpu=null", ("hardware.gpu", None)),
        ('model.config={"hidden_size": 64}', ("model.config", {"hidden_size": 64})),
        ("objective=sft", ("objective", "causal_lm")),
    ],
)
def test_set_reads_a_value_in_its_type_and_spelling(text: str, expected: tuple[str, object]) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("micro_batch_size=2", "did you mean 'batch.micro_batch_size'"),
        ("batch.micro_batchsize=2", "did you mean 'batch.micro_batch_size'"),
        ("zzz=2", "unknown key 'zzz'$"),
        ("batch.micro_batch_size=two", "takes a whole number"),
        ("batch.micro_batch_size=-1", "takes a whole number"),
        ("batch.micro_batch_size=1.5", "takes a whole number"),
        ("checkpointing.enabled=maybe", "takes true or false"),
        ("precision=bf17", "takes one of fp32, bf16-mixed"),
        ("parallel.strategy=fsdp3", "did you mean 'fsdp2'"),
        ("model.config=[1]", "takes a mapping"),
        ("batch.micro_batch_size", "expected key=value"),
        ("=2", "expected key=value"),
    ],
)
def test_set_refuses_with_a_message_for_a_person(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_every_key_has_a_meaning_a_kind_and_canonical_values() -> None:
    for name, key in KEYS.items():
        assert key.name == name
        assert key.kind in {"text", "int", "number", "bool", "names", "mapping", "any"}, name
        assert key.meaning
        for value in key.values:
            assert normalise(name, value) == value
            assert check(name, value) == value


def test_a_value_that_needs_no_other_spelling_comes_back_as_it_is() -> None:
    assert normalise("model.id", "BF16") == "BF16"
    assert normalise("adapter.method", None) == "none"
    assert normalise("no.such_key", "x") == "x"
    assert normalise("optimizer.name", "AdamW_Torch") == "adamw_torch"
