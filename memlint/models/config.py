"""A Hugging Face configuration (a `config.json`, or the keywords of `LlamaConfig(...)`) as an `Architecture`.

Absent keys take the defaults of the configuration class in transformers (`data/class_defaults.tsv` names the version), and
keys that the class computes from others are computed. Nothing here reads a file of the user.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from memlint.models import table
from memlint.models.architecture import Architecture
from memlint.models.derive import derive
from memlint.typed import Any

DEFAULTS = "class_defaults.tsv"
MAX_DEPTH = 4
"""Configurations nest (model, text, vision tower, quantiser); deeper than this is not a model configuration."""

SYNONYMS: dict[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim", "embed_dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "depth"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num"),
    "head_dim": ("head_dim", "attention_head_dim", "d_kv", "kv_channels"),
    "intermediate_size": (
        "intermediate_size",
        "n_inner",
        "d_inner",
        "ffn_dim",
        "d_ff",
        "encoder_ffn_dim",
        "ffn_hidden_size",
        "hidden_dim",
    ),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "max_positions": ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length"),
}
"""Normalised field -> the keys that model types use for it, tried in this order."""

ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "feed_forward_proj", "activation", "act_fn")
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "text_model_config", "decoder")
LAYER_LISTS = ("layers_block_type", "hybrid_override_pattern", "layer_types")
DROPOUT = r"dropout|pdrop|layerdrop|drop_path|_drop$"
INTERVALS = ("full_attention_interval", "sliding_window_pattern")
"""Keys of older configurations, no fields of the class today, that say how often the other kind of layer comes."""

FOUR_TIMES = frozenset(
    {
        "gpt2",
        "gptj",
        "codegen",
        "gpt_neo",
        "bloom",
        "gpt_bigcode",
        "openai-gpt",
        "mpt",
        "falcon",
        "decision_transformer",
    }
)
"""Types whose MLP is 4 x hidden_size when the configuration is silent (their modeling_*.py in transformers 5.24.0)."""

MEGATRON: dict[str, str] = {
    "layer_num": "num_hidden_layers",
    "head_num": "num_attention_heads",
    "kv_head_num": "num_key_value_heads",
    "head_size": "head_dim",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "dense_layers": "first_k_dense_replace",
    "expert_num": "n_routed_experts",
    "topk": "num_experts_per_tok",
    "moe_ffn_hidden_size": "moe_intermediate_size",
    "qk_head_dim": "qk_nope_head_dim",
    "qk_pos_emb_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
}
"""The keys of a Megatron model description under `megatron_config` -> Hugging Face keys."""


def from_config(config: Mapping[str, Any], name: str = "inline config", source: str = "") -> Architecture:
    """The architecture of a configuration mapping. Unknown or ill-typed keys are ignored, so this never raises.

    `params` and `linears` stay empty: only the catalogue has counted values.
    """
    filled = fill(_from_megatron(config))
    part = text_part(filled)
    kind = _text(filled.get("model_type")) or _text(part.get("model_type"))
    hidden, heads = _number(part, "hidden_size"), _number(part, "heads")
    head_dim = _number(part, "head_dim")
    if head_dim is None and hidden and heads:
        head_dim = hidden // heads
    if hidden is None and heads and head_dim:
        hidden = heads * head_dim  # diffusers transformers state only heads and their width
    tied = filled.get("tie_word_embeddings")
    return Architecture(
        name=name,
        model_type=kind,
        config=filled,
        hidden_size=hidden,
        layers=_number(part, "layers") or _listed_layers(part),
        heads=heads,
        kv_heads=_kv_heads(part, heads),
        head_dim=head_dim,
        intermediate_size=_intermediate_size(part, hidden),
        vocab_size=_number(part, "vocab_size"),
        max_positions=_number(part, "max_positions"),
        tied=bool(part.get("tie_word_embeddings") if tied is None else tied),
        activation=next((_text(part[key]) for key in ACTIVATIONS if _text(part.get(key))), ""),
        dtype=_dtype(filled) or _dtype(part),
        dropouts=dict(_dropouts(filled)),
        source=source,
    )


def fill(config: Mapping[str, Any], expected: str = "", depth: int = 0) -> dict[str, Any]:
    """The configuration with its class defaults filled in, nested configurations included.

    `expected` is the model type when the mapping does not say one. Standard names stand beside native ones
    (`hidden_size` beside `n_embd`), whichever of the two was given.
    """
    kind = _text(config.get("model_type")) or expected
    described = described_type(kind)
    defaults: Mapping[str, Any] = described.get("defaults", {})
    names: Mapping[str, str] = described.get("names", {})
    filled: dict[str, Any] = {"model_type": kind} if kind else {}
    if depth < MAX_DEPTH:
        config = _text_keys_moved(config, defaults)
    for key, value in config.items():
        filled.setdefault(names.get(key, key), value)
    for key, value in config.items():
        if key in names.values():
            filled[key] = value
    for key, value in defaults.items():
        given = filled.get(key)
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            filled[key] = _nested(given if isinstance(given, Mapping) else {}, value, depth)
        elif key not in filled:
            filled[key] = value
    if depth < MAX_DEPTH:
        for key, value in list(filled.items()):
            if isinstance(value, Mapping) and key not in defaults and key.endswith("_config") and "model_type" in value:
                filled[key] = fill(value, depth=depth + 1)
    if filled.get("use_sliding_window") is False:  # the classes that have this switch drop the window
        filled["sliding_window"] = None
    for key, rule in described.get("derived", {}).items():
        if filled.get(key) is None and not filled.get("use_sliding_window"):
            value = derive(filled, _at_interval(rule, filled))
            if value is not None:
                filled[key] = value
    for standard, native in names.items():
        if native in filled:
            filled.setdefault(standard, filled[native])
    return filled


def _at_interval(rule: list[Any], config: Mapping[str, Any]) -> list[Any]:
    """A cycle of layer kinds (n - 1 of one, then one of the other) at the interval that the configuration states."""
    interval = next((n for key in INTERVALS if (n := _int(config.get(key)))), None)
    if rule[0] != "cycle" or interval is None or interval > 64:
        return rule
    usual, nth = rule[2][0], rule[2][-1]
    return [*rule[:2], [usual] * (interval - 1) + [nth]]


def described_type(kind: str) -> Mapping[str, Any]:
    """What transformers' class for a model type assumes: `defaults`, `names`, `derived`; empty for an unknown type."""
    line = table.get(DEFAULTS, kind) if kind and not kind.startswith(("#", "=")) else None
    return json.loads(line) if line else {}


def model_type_of(config_class: str) -> str | None:
    """The `model_type` of a configuration class of transformers by its name (`GPT2Config` -> `gpt2`)."""
    line = table.get(DEFAULTS, f"={config_class}")
    return json.loads(line) if line else None


def text_part(config: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any]:
    """The configuration of the language model inside a multimodal one; the configuration itself otherwise."""
    for key in TEXT_PARTS:
        part = config.get(key)
        if isinstance(part, Mapping) and part and depth < MAX_DEPTH:
            return text_part(part, depth + 1)
    return config


def _nested(given: Mapping[str, Any], assumed: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """A nested configuration: what is given over the defaults of its class; the outer class's own only if nothing is."""
    return fill(given or assumed, _text(assumed.get("model_type")), depth + 1)


def _text_keys_moved(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older multimodal checkpoints (Qwen2-VL) state the language model's keys at the top: move them where they belong."""
    assumed = defaults.get("text_config")
    if not isinstance(assumed, Mapping) or "text_config" in config:
        return config
    known = described_type(_text(assumed.get("model_type"))).get("defaults", {})
    moved = {key: value for key, value in config.items() if key in known and key not in defaults}
    if not moved:
        return config
    return {**{key: value for key, value in config.items() if key not in moved}, "text_config": moved}


def _from_megatron(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration that describes the model in Megatron's words, in Hugging Face's."""
    words = config.get("megatron_config")
    if not isinstance(words, Mapping):
        return config
    translated = {MEGATRON[key]: value for key, value in words.items() if key in MEGATRON}
    shared, each = words.get("moe_shared_expert_intermediate_size"), words.get("moe_ffn_hidden_size")
    if isinstance(shared, int) and isinstance(each, int) and each:
        translated["n_shared_experts"] = shared // each
    return {**translated, **config}


def _number(config: Mapping[str, Any], field: str) -> int | None:
    """The first usable positive integer among the keys of a normalised field."""
    return next((value for key in SYNONYMS[field] if (value := _int(config.get(key)))), None)


def _int(value: Any) -> int | None:
    """A positive integer; None for anything else (booleans, strings, per-layer lists of different sizes)."""
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        value = value[0]
    return value if type(value) is int and 0 < value < 2**40 else None


def _listed_layers(config: Mapping[str, Any]) -> int | None:
    """How many layers a hybrid model lists one by one (Nemotron-H)."""
    listed = next((v for key in LAYER_LISTS if isinstance(v := config.get(key), (list, str))), None)
    return len(listed) if listed else None


def _kv_heads(config: Mapping[str, Any], heads: int | None) -> int | None:
    """Key and value heads: one under multi-query attention, as many as query heads when nothing says otherwise."""
    kind = config.get("model_type")
    if kind == "falcon" and config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    if kind == "gpt_bigcode":
        return 1 if config.get("multi_query", True) else heads
    if kind == "chatglm" and not config.get("multi_query_attention"):
        return heads
    attention = config.get("attn_config")
    if isinstance(attention, Mapping):  # mpt, dbrx
        if attention.get("attn_type") == "multiquery_attention":
            return 1
        return _int(attention.get("kv_n_heads")) or heads
    return _number(config, "kv_heads") or heads


def _intermediate_size(config: Mapping[str, Any], hidden: int | None) -> int | None:
    """The width of the MLP; the types in `FOUR_TIMES` have a fixed multiple of the hidden size."""
    inner = config.get("ffn_config")
    if isinstance(inner, Mapping) and _int(inner.get("ffn_hidden_size")):  # dbrx
        return _int(inner.get("ffn_hidden_size"))
    stated = _number(config, "intermediate_size")
    if stated is None and hidden and config.get("model_type") in FOUR_TIMES:
        ratio = config.get("expansion_ratio")
        return int(hidden * ratio) if isinstance(ratio, (int, float)) and 0 < ratio < 1024 else 4 * hidden
    return stated


def _dtype(config: Mapping[str, Any]) -> str | None:
    """The dtype of the checkpoint (`dtype`, or `torch_dtype` before transformers 4.56), without `torch.`."""
    value = config.get("dtype") or config.get("torch_dtype")
    return value.removeprefix("torch.") if isinstance(value, str) else None


def _dropouts(config: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """Every dropout probability above zero, nested ones under a dotted key."""
    for key, value in config.items():
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            yield from _dropouts(value, f"{prefix}{key}.", depth + 1)
        elif re.search(DROPOUT, str(key)) and type(value) in (int, float) and 0 < value < 1:
            yield f"{prefix}{key}", float(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
