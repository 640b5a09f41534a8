"""Tiny configs of types that stand on another type's page, with a difference that is theirs."""

from __future__ import annotations

from .bases import BERT, LLAMA, MOE, mostly_linear
from .family import VOCAB, Family

_WIDE = dict(LLAMA, head_dim=24)
_GEMMA = dict(_WIDE, sliding_window=4096, query_pre_attn_scalar=24)
_EAGER = frozenset({"sdpa"})


def _windows(layers: int) -> dict[str, list[str]]:
    return {"layer_types": ["full_attention"] + ["sliding_attention"] * (layers - 1)}


def _first_sparse(layers: int) -> dict[str, list[object]]:
    return {
        "layer_types": ["full_attention"] * layers,
        "intermediate_size": [176] * layers,
        "activation_sparsity_pattern": [0.95] + [0.0] * (layers - 1),
    }


RELATIVES: tuple[Family, ...] = (
    Family("jais2", config=LLAMA),
    Family("vaultgemma", config=dict(_WIDE, sliding_window=4096, query_pre_attn_scalar=24), without=_EAGER),
    Family("flex_olmo", config=dict(LLAMA, num_experts=4, num_experts_per_tok=2), without=MOE),
    Family("granite_swa", config=dict(LLAMA, sliding_window=64), layer_list=_windows, without=_EAGER),
    Family("persimmon", config=dict(LLAMA, num_key_value_heads=4)),
    Family("xlm-roberta-xl", "masked_lm", BERT),
    Family("roberta-prelayernorm", "sequence_classification", BERT),
    Family(
        "layoutlmv3",
        "token_classification",
        dict(BERT, input_size=64, patch_size=16, coordinate_size=12, shape_size=8, max_2d_position_embeddings=128),
        without=frozenset({"checkpointing"}),
    ),
    Family(
        "t5gemma",
        "seq2seq_lm",
        {"encoder": _GEMMA, "decoder": dict(_GEMMA, cross_attention_hidden_size=64), "vocab_size": VOCAB},
        depth=("encoder.num_hidden_layers", "decoder.num_hidden_layers"),
        without=_EAGER,
    ),
    Family(
        "gemma3n_text",
        config=dict(
            _WIDE,
            sliding_window=4096,
            vocab_size_per_layer_input=VOCAB,
            hidden_size_per_layer_input=24,
            laurel_rank=16,
            num_kv_shared_layers=0,
        ),
        layer_list=_first_sparse,
    ),
    Family(
        "openai-gpt",
        config={"vocab_size": VOCAB, "n_embd": 64, "n_head": 4, "n_positions": 512},
        depth=("n_layer",),
        without=_EAGER | {"checkpointing"},
    ),
    Family(
        "olmo_hybrid",
        config=dict(LLAMA, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=24),
        layer_list=mostly_linear,
    ),
)
