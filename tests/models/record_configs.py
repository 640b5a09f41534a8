"""Write `recorded_configs.json`: what transformers' configuration classes make of some keywords. Needs transformers only.

python tests/models/record_configs.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig

CASES: list[dict[str, Any]] = [
    {"model_type": "llama", "hidden_size": 2048, "num_attention_heads": 16},
    {"model_type": "llama", "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64},
    {"model_type": "mistral", "num_hidden_layers": 4},
    {"model_type": "qwen2", "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2},
    {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28},
    {"model_type": "qwen3_moe", "num_experts": 64, "num_hidden_layers": 6},
    {"model_type": "qwen3_next", "num_hidden_layers": 8},
    {"model_type": "gpt2", "n_layer": 6, "n_embd": 384, "n_head": 6},
    {"model_type": "gpt2", "num_hidden_layers": 3, "hidden_size": 256},
    {"model_type": "gpt_neox", "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048},
    {"model_type": "bert", "num_hidden_layers": 2},
    {"model_type": "roberta"},
    {"model_type": "distilbert", "n_layers": 3},
    {"model_type": "t5", "num_layers": 4, "d_model": 256},
    {"model_type": "bart", "encoder_layers": 3, "decoder_layers": 2},
    {"model_type": "whisper", "d_model": 384, "encoder_layers": 4},
    {"model_type": "mpt", "d_model": 768, "n_heads": 12, "n_layers": 12},
    {"model_type": "falcon", "hidden_size": 1024, "num_attention_heads": 16},
    {"model_type": "bloom", "hidden_size": 512, "n_layer": 4, "n_head": 8},
    {"model_type": "opt", "hidden_size": 512, "num_attention_heads": 8, "ffn_dim": 2048},
    {"model_type": "phi3", "num_hidden_layers": 4},
    {"model_type": "gemma3_text", "num_hidden_layers": 7},
    {"model_type": "gemma3", "text_config": {"num_hidden_layers": 12}},
    {"model_type": "deepseek_v3", "num_hidden_layers": 4, "qk_rope_head_dim": 32},
    {"model_type": "gpt_oss", "num_hidden_layers": 5},
    {"model_type": "mixtral", "num_local_experts": 4},
    {"model_type": "olmo2", "hidden_size": 2048},
    {"model_type": "mamba", "hidden_size": 512},
    {"model_type": "vit", "hidden_size": 384, "num_attention_heads": 6},
    {"model_type": "clip", "text_config": {"hidden_size": 256}},
    {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}},
    {"model_type": "qwen2_vl", "vision_config": {"depth": 8}},
    {"model_type": "wav2vec2", "hidden_size": 1024},
]

SHAPE = re.compile(
    r"hidden_size|num_hidden_layers|num_attention_heads|num_key_value_heads|head_dim|"
    r"intermediate_size|vocab_size|max_position_embeddings|tie_word_embeddings|layer_types|n_embd|"
    r"n_layer|n_head|n_inner|d_model|d_ff|d_kv|num_layers|num_decoder_layers|num_heads|"
    r"encoder_layers|decoder_layers|encoder_ffn_dim|decoder_ffn_dim|n_heads|n_layers|dim|"
    r"hidden_dim|ffn_dim|num_local_experts|num_experts_per_tok|moe_intermediate_size|qk_head_dim|"
    r"sliding_window|first_k_dense_replace|kv_lora_rank|ffn_hidden_size|depth|patch_size|image_size|"
    r"hidden_dropout_prob|dropout|attention_dropout|resid_pdrop|state_size|time_step_rank|"
    r"projection_dim"
)
"""The keys that are recorded."""


def kept(config: dict[str, Any]) -> dict[str, Any]:
    """The recorded keys of a configuration, nested ones too."""
    found = {key: config[key] for key in config if SHAPE.fullmatch(key)}
    nested = {key: kept(value) for key, value in config.items() if key in ("text_config", "vision_config") and value}
    return {**found, **nested}


def main() -> None:
    """Record every case."""
    recorded = []
    for case in CASES:
        given = json.loads(json.dumps(case))
        made = AutoConfig.for_model(given.pop("model_type"), **given).to_dict()
        recorded.append({"given": case, "made": kept(made)})
    lines = ",\n".join(json.dumps(row) for row in recorded)
    text = f'{{"transformers": "{transformers.__version__}", "cases": [\n{lines}\n]}}\n'
    (Path(__file__).parent / "recorded_configs.json").write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
