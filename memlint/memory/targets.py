"""Which modules a PEFT configuration names: the names that people write, and those that PEFT takes where none is written."""

from __future__ import annotations

import re

from memlint.memory.result import CannotEstimate

EVERY_LINEAR = ("all-linear", "all")
"""Shorthands for the targets."""

_QV = ("q_proj", "v_proj")
_QUERY_VALUE = ("query", "value")
_FUSED = ("query_key_value",)
_BART = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2")
_GPT2_MLP: dict[str, tuple[str, ...]] = {"gpt2": ("mlp.c_proj",), "gpt_bigcode": ("mlp.c_proj",)}
_LLAMA = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "down_proj", "up_proj")

DEFAULTS: dict[str, tuple[str, ...] | str] = {
    "t5": ("q", "v"), "mt5": ("q", "v"), "bart": _QV, "gpt2": ("c_attn",), "bloom": _FUSED, "blip-2": ("q", "v", *_QV), "opt": _QV,
    "gptj": _QV, "gpt_neox": _FUSED, "gpt_neo": _QV, "bert": _QUERY_VALUE, "roberta": _QUERY_VALUE, "xlm-roberta": _QUERY_VALUE,
    "electra": _QUERY_VALUE, "deberta-v2": ("query_proj", "value_proj"), "deberta": ("in_proj",), "layoutlm": _QUERY_VALUE,
    "llama": _QV, "llama4": _QV, "chatglm": _FUSED, "gpt_bigcode": ("c_attn",), "mpt": ("Wqkv",), "RefinedWebModel": _FUSED,
    "RefinedWeb": _FUSED, "falcon": _FUSED, "btlm": ("c_proj", "c_attn"), "codegen": ("qkv_proj",), "mistral": _QV, "mixtral": _QV,
    "stablelm": _QV, "phi": (*_QV, "fc1", "fc2"), "gemma": _QV, "gemma2": _QV, "gemma3_text": _QV,
    "gemma4": r".*language_model\..*\.(q_proj|v_proj)", "qwen2": _QV, "qwen3": _QV,
    "nemotron_h": ("q_proj", "k_proj", "v_proj", "o_proj"), "rwkv": ("key", "value", "receptance", "output"),
    "rwkv7": ("r_proj", "k_proj", "v_proj", "o_proj", "key", "value"),
}  # fmt: skip
"""Targets by model type where a configuration names none (peft 0.21.2, `utils/constants.py`
`TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`)."""

OWN_DEFAULTS: dict[str, dict[str, tuple[str, ...]]] = {
    "ia3": {
        "t5": ("k", "v", "wo"), "mt5": ("k", "v", "wi_1"), "gpt2": ("c_attn", "mlp.c_proj"), "bloom": (*_FUSED, "mlp.dense_4h_to_h"),
        "roberta": ("key", "value", "output.dense"), "opt": ("q_proj", "k_proj", "fc2"), "gptj": (*_QV, "fc_out"),
        "gpt_neox": (*_FUSED, "dense_4h_to_h"), "gpt_neo": (*_QV, "c_proj"), "bart": (*_QV, "fc2"),
        "gpt_bigcode": ("c_attn", "mlp.c_proj"), "llama": ("k_proj", "v_proj", "down_proj"), "llama4": (*_QV, "down_proj"),
        "mistral": ("k_proj", "v_proj", "down_proj"), "mixtral": ("k_proj", "v_proj", "w2"), "bert": ("key", "value", "output.dense"),
        "deberta-v2": ("key_proj", "value_proj", "output.dense"), "deberta": ("in_proj", "output.dense"),
        "RefinedWebModel": (*_FUSED, "dense_4h_to_h"), "RefinedWeb": (*_FUSED, "dense_4h_to_h"), "falcon": (*_FUSED, "dense_4h_to_h"),
        "phi": (*_QV, "fc2"), "gemma": (*_QV, "down_proj"), "gemma2": (*_QV, "down_proj"), "gemma3_text": (*_QV, "down_proj"),
        "qwen2": (*_QV, "down_proj"), "qwen3": (*_QV, "down_proj"),
    },
    "adalora": {
        "t5": ("q", "k", "v", "o", "wi", "wo"), "mt5": ("q", "k", "v", "o", "wi_0", "wi_1", "wo"), "bart": _BART, "opt": _BART,
        "roberta": ("query", "key", "value", "dense"), "deberta-v2": ("query_proj", "key_proj", "value_proj", "dense"),
    },
    "vblora": {
        "t5": ("q", "k", "v", "o", "wi", "wo"), "mt5": ("q", "k", "v", "o", "wi_0", "wi_1", "wo"), "bart": _BART, "opt": _BART,
        "deberta-v2": ("query_proj", "key_proj", "value_proj", "dense"),
    },
    "osf": {
        "llama": _LLAMA, "llama4": _LLAMA, "mistral": _LLAMA, "mixtral": _LLAMA, "gemma": _LLAMA, "gemma2": _LLAMA, "gemma3_text": _LLAMA,
        "qwen2": _LLAMA, "qwen3": _LLAMA, "phi": _LLAMA, "gpt2": ("c_attn", "c_proj"), "bloom": (*_FUSED, "dense_4h_to_h"), "opt": _BART,
        "gptj": ("q_proj", "k_proj", "v_proj", "out_proj", "fc_in", "fc_out"), "gpt_neox": (*_FUSED, "dense_4h_to_h"),
        "falcon": (*_FUSED, "dense_4h_to_h"), "gpt_bigcode": ("c_attn", "c_proj"),
    },
    "beft": {
        "t5": ("v",), "mt5": ("v",), "roberta": ("value",), "bert": ("value",), "deberta-v2": ("value_proj",),
        **dict.fromkeys(("opt", "gptj", "gpt_neo", "bart", "llama", "llama4", "mistral", "mixtral", "phi", "gemma", "gemma2",
                         "gemma3_text", "qwen2", "qwen3"), ("v_proj",)),
    },
    "waveft": _GPT2_MLP, "c3a": _GPT2_MLP, "fourierft": _GPT2_MLP, "shira": {"phi": _QV}, "vera": {"phi": _QV},
    "frod": {"phi": _QV, "vit": _QUERY_VALUE}, "pvera": {"phi": _QV, "dinov2": _QUERY_VALUE}, "adamss": {"vit": _QUERY_VALUE},
}  # fmt: skip
"""Methods with targets of their own for some model types (ibidem)."""

BLOCK_PARTS = {
    "attn": ("attn", "self_attn", "attention", "self_attention", "linear_attn"),
    "mlp": ("mlp", "feed_forward", "block_sparse_moe"),
    "experts": ("experts",),
    "shared_expert": ("shared_expert", "shared_experts"),
    "mixer": ("mixer", "mamba"),
}
"""What the model classes call the parts of a block that linears stand in; targets name them (`shared_expert.up_proj`). Others are called
what the pages call them."""

ALL_PARTS = {
    "conv", "cross_attn", "encoder_attn", "SelfAttention", "EncDecAttention", "DenseReluDense",
    *(name for names in BLOCK_PARTS.values() for name in names),
}  # fmt: skip


OTHER_NAMES = {"embed_out": ("embed_out", "lm_head")}
"""What versions of a class call a module: GPT-NeoX's head has another name in transformers 5."""


def default_targets(method: str, model_type: str) -> tuple[str, ...] | str:
    """What PEFT adapts in a model of this type; raises `CannotEstimate` where it has no default and stops itself."""
    found = OWN_DEFAULTS.get(method, {}).get(model_type) or DEFAULTS.get(model_type)
    if found is None:
        raise CannotEstimate(
            f"adapter.target_modules is not known, and PEFT has no default for {model_type} models: set it with "
            "`--set adapter.target_modules=NAMES`"
        )
    return found


def named(wanted: tuple[str, ...] | str, part: str, name: str) -> bool:
    """Whether targets (names, or a regular expression) name the module of this name, which stands in this part of a block.

    A name may end in several components of the module's path where one is not enough (`attention.output.dense`).
    """
    if isinstance(wanted, str):
        leaf = name.rsplit(".", 1)[-1]
        return re.search(wanted, leaf) is not None if wanted.isidentifier() else _matches(wanted, leaf)
    spellings = [called.split(".") for called in OTHER_NAMES.get(name, (name,))]
    return any(_is_called(target.split("."), part, called) for target in wanted for called in spellings)


def _is_called(target: list[str], part: str, name: list[str]) -> bool:
    """Whether a target (`c_proj`, `attn.c_proj`, `self_attn.q_proj`) names this module."""
    common = min(len(target), len(name))
    if target[-common:] != name[-common:]:
        return False
    path = target[:-common]
    return not path or path[-1] in BLOCK_PARTS.get(part, (part,)) or path[-1] not in ALL_PARTS


def _matches(pattern: str, name: str) -> bool:
    """A regular expression over module paths, tried against the leaf name in the places where it usually stands."""
    try:
        compiled = re.compile(pattern)
    except re.error:
        return False
    paths = (name, f"model.layers.0.self_attn.{name}", f"model.layers.0.mlp.{name}", f"layers.0.{name}",
             f"model.language_model.layers.0.self_attn.{name}", f"model.language_model.layers.0.mlp.{name}",
             f"transformer.h.0.attn.{name}", f"transformer.h.0.mlp.{name}")  # fmt: skip
    return any(compiled.fullmatch(path) for path in paths)
