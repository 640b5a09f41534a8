"""Tiny configs of text families beside the common ones: hybrids, mixtures of experts, older decoders, protein models."""

from __future__ import annotations

from .bases import LATENT, LLAMA, MOE
from .family import VOCAB, Family


def _convolutions(layers: int) -> dict[str, list[str]]:
    return {"layer_types": ["full_attention"] + ["conv"] * (layers - 1)}


def _attending(layers: int) -> dict[str, list[str]]:
    return {"layer_types": ["attention"] * layers}


_INDEXED = dict(LATENT, q_lora_rank=48, n_group=1, topk_group=1, index_n_heads=3, index_head_dim=16, index_topk=64)


TEXT: tuple[Family, ...] = (
    Family("lfm2", config=dict(LLAMA, block_auto_adjust_ff_dim=False), layer_list=_convolutions),
    Family(
        "granitemoehybrid",
        config=dict(
            LLAMA, shared_intermediate_size=176, num_local_experts=0, num_experts_per_tok=0, position_embedding_type="rope"
        ),
        layer_list=_attending,
    ),
    Family("deepseek_v32", config=_INDEXED, without=MOE),
    Family("glm_moe_dsa", config=_INDEXED, without=MOE),
    Family(
        "llama4_text",
        config=dict(
            LLAMA,
            head_dim=24,
            intermediate_size_mlp=200,
            num_local_experts=4,
            num_experts_per_tok=1,
            interleave_moe_layer_step=1,
        ),
        without=frozenset({"lora"}),
    ),
    Family(
        "esm",
        "masked_lm",
        {
            "hidden_size": 64,
            "intermediate_size": 176,
            "num_attention_heads": 4,
            "vocab_size": VOCAB,
            "max_position_embeddings": 512,
            "pad_token_id": 1,
            "mask_token_id": 32,
            "position_embedding_type": "rotary",
            "token_dropout": True,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
    ),
)
