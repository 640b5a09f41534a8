"""Configurations with class defaults, against values recorded from transformers (record_configs.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memlint.models import from_config, table
from memlint.models.config import fill, model_type_of

RECORDED = json.loads((Path(__file__).parent / "recorded_configs.json").read_text(encoding="ascii"))


def compare(ours: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    for key, value in theirs.items():
        if isinstance(value, dict):
            compare(ours[key], value, f"{where}.{key}")
        else:
            assert ours.get(key) == value, f"{where}.{key}"


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: json.dumps(case["given"])[:60])
def test_the_filled_configuration_is_what_transformers_makes(case: dict[str, Any]) -> None:
    compare(fill(case["given"]), case["made"], case["given"]["model_type"])


def test_the_class_defaults_are_of_the_recorded_version() -> None:
    assert table.origin("class_defaults.tsv") == f"transformers {RECORDED['transformers']}"


@pytest.mark.parametrize(
    ("config_class", "model_type"),
    [
        ("GPT2Config", "gpt2"),
        ("LlamaConfig", "llama"),
        ("GPTNeoXConfig", "gpt_neox"),
        ("XLMRobertaConfig", "xlm-roberta"),
        ("DebertaV2Config", "deberta-v2"),
        ("Qwen2_5_VLConfig", "qwen2_5_vl"),
        ("Gemma3TextConfig", "gemma3_text"),
        ("MyConfig", None),
        ("", None),
    ],
)
def test_model_types_of_configuration_classes(config_class: str, model_type: str | None) -> None:
    assert model_type_of(config_class) == model_type


def test_standard_and_native_names_both_work() -> None:
    native = from_config({"model_type": "gpt2", "n_layer": 6, "n_embd": 384, "n_head": 6})
    standard = from_config({"model_type": "gpt2", "num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 6})
    assert native == standard
    assert (native.layers, native.hidden_size, native.heads, native.head_dim) == (6, 384, 6, 64)
    assert native.intermediate_size == 4 * 384  # n_inner None: modeling_gpt2.py, "4 * hidden_size"
    assert native.tied
    assert native.dropouts["attn_pdrop"] == 0.1


@pytest.mark.parametrize(
    ("config", "kv_heads"),
    [
        ({"model_type": "falcon"}, 1),  # multi_query is the class default
        ({"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 8}, 8),
        ({"model_type": "gpt_bigcode", "n_head": 16}, 1),
        ({"model_type": "gpt_bigcode", "n_head": 16, "multi_query": False}, 16),
        ({"model_type": "mpt", "n_heads": 8, "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 2}}, 2),
        ({"model_type": "llama", "num_attention_heads": 16}, 16),
    ],
)
def test_key_value_heads(config: dict[str, Any], kv_heads: int) -> None:
    assert from_config(config).kv_heads == kv_heads


def test_layer_kinds_follow_the_stated_interval() -> None:
    kinds = fill({"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window_pattern": 2})["layer_types"]
    assert kinds == ["sliding_attention", "full_attention"] * 2


def test_a_switched_off_window_is_none() -> None:
    filled = fill({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 32768})
    assert filled["sliding_window"] is None


def test_older_multimodal_layout_is_moved_into_the_text_part() -> None:
    config = {"model_type": "qwen2_vl", "hidden_size": 1536, "num_hidden_layers": 28, "vision_config": {"depth": 8}}
    architecture = from_config(config)
    assert (architecture.hidden_size, architecture.layers) == (1536, 28)
    assert architecture.config["text_config"]["hidden_size"] == 1536
    assert architecture.config["vision_config"]["depth"] == 8


def test_configurations_from_other_libraries_are_read_as_far_as_they_go() -> None:
    # diffusers CogVideoXTransformer3DModel (2B): 30 layers, 30 heads of 64 = 1920 wide
    sizes = {"num_layers": 30, "num_attention_heads": 30, "attention_head_dim": 64}
    video = from_config({"model_type": "cogvideox_transformer3d", **sizes})
    assert (video.layers, video.heads, video.hidden_size) == (30, 30, 1920)
    # Megatron's words (SimuMax model files): DeepSeek-V3 cut to 4 layers
    words = {"hidden_size": 7168, "head_num": 128, "kv_head_num": 128, "layer_num": 4, "expert_num": 256, "topk": 8}
    words |= {"moe_ffn_hidden_size": 2048, "moe_shared_expert_intermediate_size": 2048, "vocab_size": 129280}
    deepseek = from_config({"model_type": "deepseek_v3", "megatron_config": words})
    assert (deepseek.layers, deepseek.hidden_size, deepseek.vocab_size) == (4, 7168, 129280)
    assert deepseek.config["n_routed_experts"] == 256
    assert deepseek.config["n_shared_experts"] == 1


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": None},
        {"model_type": 3, "hidden_size": "wide"},
        {"model_type": "llama", "hidden_size": -1, "num_attention_heads": 0},
        {"model_type": "llama", "num_hidden_layers": [1, 2], "head_dim": {}},
        {"model_type": "gemma3", "text_config": None, "vision_config": 7},
        {"model_type": "mpt", "attn_config": "x", "expansion_ratio": "4"},
        {"model_type": "qwen3_next", "full_attention_interval": 0},
        {"model_type": "deepseek_v3", "megatron_config": {"moe_ffn_hidden_size": 0, "moe_shared_expert_intermediate_size": 1}},
        {"text_config": {"text_config": {"text_config": {"text_config": {"text_config": {"hidden_size": 1}}}}}},
        {"model_type": "#\t"},
        {"model_type": "=GPT2Config"},
        {"model_type": "llama\nmistral"},
        {1: 2},
    ],
)
def test_nonsense_never_raises(config: dict[Any, Any]) -> None:
    from_config(config)


def test_every_line_of_the_class_defaults_is_found() -> None:
    """The search by halves needs the file sorted; each line must come back as it stands."""
    for key, value in table.items("class_defaults.tsv"):
        assert table.get("class_defaults.tsv", key) == value
