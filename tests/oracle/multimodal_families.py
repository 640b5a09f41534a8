"""Tiny configs of newer vision-language models: experts or linear attention behind the tower (Qwen 3.5), Gemma 4, Llama 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .bases import LATENT, LLAMA, MOE
from .family import VOCAB, Family
from .vision_language_families import BOTH, DECODER, TOWER

_SIZES = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4}
_QWEN = {
    **_SIZES,
    "out_hidden_size": 96,
    "num_heads": 4,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "num_position_embeddings": 64,
}
_QWEN_ROPE = {"rope_type": "default", "mrope_section": [4, 4, 4], "rope_theta": 1e4}
_QWEN_DEPTH = ("text_config.num_hidden_layers", "vision_config.depth")
_DELTA = {
    "head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": dict(_QWEN_ROPE, partial_rotary_factor=0.5),
    "full_attention_interval": 2,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 88}

_GEMMA = dict(
    DECODER, head_dim=16, global_head_dim=32, sliding_window=4096, use_bidirectional_attention="vision", tie_word_embeddings=True
)
_SAME = dict(_GEMMA, attention_k_eq_v=True, num_global_key_value_heads=1)
_DENSE = dict(_SAME, hidden_size_per_layer_input=0)
_EFFECTIVE = dict(_GEMMA, use_bidirectional_attention=None, vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=24)
_GEMMA_TOWER = {
    **_SIZES,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "global_head_dim": 16,
    "patch_size": 14,
    "pooling_kernel_size": 3,
    "position_embedding_size": 32,
}
_LARGE_PATCHES = {"patch_size": 14, "pooling_kernel_size": 3, "mm_embed_dim": 64, "mm_posemb_size": 32, "output_proj_dims": 64}


def _full_last(text: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
    return lambda layers: {"text_config": {**text, "layer_types": ["sliding_attention"] * (layers - 1) + ["full_attention"]}}


NAMED = frozenset({"attention", "mlp", "ends", "saved"})
"""Targets by name are modules around a linear in Gemma 4's tower, which peft refuses."""


def _gemma(
    model_type: str,
    text: dict[str, Any],
    vision: dict[str, Any],
    depth: tuple[str, ...] = BOTH,
    use: str = "",
    without: frozenset[str] = NAMED,
) -> Family:
    return Family(
        model_type,
        "image_text_to_text",
        {"text_config": text, "vision_config": vision, "audio_config": None, "image_token_id": 5},
        depth=depth,
        use=use,
        image_size=168,
        image_tokens=16,
        reads=16,
        layer_list=_full_last(text),
        without=without,
    )


MULTIMODAL: tuple[Family, ...] = (
    Family(
        "qwen3_vl_moe",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, head_dim=24, rope_parameters=_QWEN_ROPE, **_EXPERTS),
            "vision_config": dict(_QWEN, deepstack_visual_indexes=[0]),
            "image_token_id": 5,
        },
        depth=_QWEN_DEPTH,
        image_size=112,
        image_tokens=16,
        without=MOE,
    ),
    Family(
        "qwen3_5",
        "image_text_to_text",
        {"text_config": dict(DECODER, **_DELTA), "vision_config": _QWEN, "image_token_id": 5},
        depth=_QWEN_DEPTH,
        image_size=112,
        image_tokens=16,
    ),
    Family(
        "qwen3_5_moe",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, **_DELTA, **_EXPERTS, shared_expert_intermediate_size=112),
            "vision_config": _QWEN,
            "image_token_id": 5,
        },
        depth=_QWEN_DEPTH,
        image_size=112,
        image_tokens=16,
        without=MOE,
    ),
    Family(
        "mistral3",
        "image_text_to_text",
        {
            "text_config": dict(
                LATENT,
                q_lora_rank=48,
                n_group=1,
                topk_group=1,
                model_type="mistral4",
                hidden_size=96,
                tie_word_embeddings=False,
            ),
            "vision_config": dict(TOWER, model_type="pixtral", head_dim=16),
            "image_token_id": 5,
            "spatial_merge_size": 2,
        },
        depth=BOTH,
        use="mistral4",
        reads=16,
        without=MOE,
    ),
    _gemma("gemma4", _DENSE, dict(_GEMMA_TOWER, standardize=True)),
    _gemma("gemma4", _EFFECTIVE, dict(_GEMMA_TOWER, use_clipped_linears=True), use="effective"),
    _gemma("gemma4_unified", _SAME, _LARGE_PATCHES, depth=("text_config.num_hidden_layers",), without=frozenset()),
    Family(
        "llama4",
        "image_text_to_text",
        {
            "text_config": dict(
                LLAMA,
                head_dim=24,
                intermediate_size_mlp=200,
                num_local_experts=4,
                num_experts_per_tok=1,
                interleave_moe_layer_step=1,
            ),
            "vision_config": dict(
                TOWER,
                vision_output_dim=48,
                projector_input_dim=48,
                projector_output_dim=48,
                intermediate_size=256,
                pixel_shuffle_ratio=0.5,
            ),
            "image_token_index": 5,
        },
        depth=BOTH,
        image_tokens=16,
        without=frozenset({"lora"}),
    ),
)
