"""Tiny configs of decoders beside the common ones: newer dense ones, mixtures of experts, the line of GPT-2."""

from __future__ import annotations

from .bases import DELTA, LATENT, LLAMA, MOE, mostly_linear
from .family import VOCAB, Family

_WIDE = dict(LLAMA, head_dim=24)
_WINDOWED = dict(LLAMA, sliding_window=64)
_GPT = {
    "n_embd": 64,
    "n_head": 4,
    "n_inner": 176,
    "n_positions": 512,
    "vocab_size": VOCAB,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _sliding(layers: int) -> dict[str, list[str]]:
    return {"layer_types": ["sliding_attention"] * (layers - 1) + ["full_attention"]}


DECODERS: tuple[Family, ...] = (
    Family("olmo3", config=_WINDOWED, layer_list=_sliding),
    Family("exaone4", config=dict(_WINDOWED, sliding_window_pattern=None), layer_list=_sliding),
    Family("apertus", config=LLAMA),
    Family("arcee", config=LLAMA),
    Family("ministral", config=dict(_WINDOWED, head_dim=24), layer_list=_sliding),
    Family("ministral3", config=_WIDE),
    Family("seed_oss", config=_WIDE),
    Family("glm4", config=dict(_WIDE, partial_rotary_factor=0.5)),
    Family("hunyuan_v1_dense", config=_WIDE),
    Family("ernie4_5", config=_WIDE),
    Family(
        "minimax_m2",
        config=dict(_WIDE, num_local_experts=4, num_experts_per_tok=2),
        without=MOE | {"default", "mlp"},  # as for Mixtral; no linear beside attention
    ),
    Family("glm4_moe_lite", config=dict(LATENT, q_lora_rank=48, n_group=1, topk_group=1), without=MOE),
    Family(
        "qwen3_5_moe_text",
        config=dict(DELTA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=88, shared_expert_intermediate_size=112),
        layer_list=mostly_linear,
        without=MOE,
    ),
    Family("nemotron", config=dict(_WIDE, partial_rotary_factor=0.5)),
    Family("glm", config=dict(_WIDE, partial_rotary_factor=0.5)),
    Family("helium", config=dict(LLAMA, head_dim=16)),
    Family("gpt_bigcode", config=_GPT, depth=("n_layer",)),
    Family("codegen", config=dict(_GPT, rotary_dim=8), depth=("n_layer",)),
    Family(
        "biogpt",
        config={
            "hidden_size": 64,
            "intermediate_size": 176,
            "num_attention_heads": 4,
            "vocab_size": VOCAB,
            "max_position_embeddings": 512,
            "pad_token_id": 0,
            "layerdrop": 0.0,
        },
        makes_mask=True,
    ),
    Family(
        "xglm",
        config={
            "d_model": 64,
            "ffn_dim": 176,
            "attention_heads": 4,
            "vocab_size": VOCAB,
            "max_position_embeddings": 512,
            "pad_token_id": 0,
            "layerdrop": 0.0,
        },
        depth=("num_layers",),
        without=frozenset({"sdpa"}),
    ),
)
