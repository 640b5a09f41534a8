"""What tiny configs of several families have in common."""

from __future__ import annotations

from .family import VOCAB

LLAMA = {
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

BERT = {
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_attention_heads": 4,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}

T5 = {
    "d_model": 64,
    "d_kv": 24,
    "d_ff": 176,
    "num_heads": 4,
    "vocab_size": VOCAB,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": 1,
}

MOE = frozenset({"dropout", "float32"})
"""peft adapts stacked experts without dropout only; the fake device multiplies groups in bfloat16 only."""

LATENT = dict(
    LLAMA,
    num_key_value_heads=4,
    n_routed_experts=4,
    n_shared_experts=2,
    num_experts_per_tok=2,
    moe_intermediate_size=88,
    first_k_dense_replace=1,
    q_lora_rank=None,
    kv_lora_rank=32,
    qk_rope_head_dim=8,
    qk_nope_head_dim=16,
    v_head_dim=24,
)

DELTA = dict(
    LLAMA,
    head_dim=24,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=24,
    linear_conv_kernel_dim=4,
)
"""Attention layers among gated delta networks."""


def mostly_linear(layers: int) -> dict[str, list[str]]:
    """The kinds of their layers: only the last one attends."""
    return {"layer_types": ["linear_attention"] * (layers - 1) + ["full_attention"]}
