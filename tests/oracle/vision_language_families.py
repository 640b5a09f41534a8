"""Tiny configs of vision-language models."""

from __future__ import annotations

from .bases import LLAMA, MOE
from .family import Family

DECODER = dict(LLAMA, hidden_size=96, tie_word_embeddings=False)
_SIZES = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4}
TOWER = dict(_SIZES, image_size=112, patch_size=14)
BOTH = ("text_config.num_hidden_layers", "vision_config.num_hidden_layers")
_QWEN_ROPE = {"rope_type": "default", "mrope_section": [4, 4, 4], "rope_theta": 1e4}

_GLM_TOWER = {
    "hidden_size": 64,
    "intermediate_size": 176,
    "out_hidden_size": 96,
    "num_heads": 4,
    "image_size": 112,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
VISION_LANGUAGE: tuple[Family, ...] = (
    Family(
        "internvl",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, model_type="qwen2"),
            "vision_config": dict(TOWER, model_type="internvl_vision", image_size=[112, 112], patch_size=[14, 14]),
            "image_token_id": 5,
            "downsample_ratio": 0.5,
        },
        depth=BOTH,
    ),
    Family(
        "idefics3",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, model_type="llama"),
            "vision_config": dict(TOWER, model_type="idefics3_vision"),
            "image_token_id": 5,
            "scale_factor": 2,
        },
        depth=BOTH,
        image_tokens=48,
        reads=3,
    ),
    Family(
        "smolvlm",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, model_type="llama"),
            "vision_config": dict(TOWER, model_type="smolvlm_vision"),
            "image_token_id": 5,
            "scale_factor": 2,
        },
        depth=BOTH,
        image_tokens=48,
        reads=3,
    ),
    Family(
        "idefics2",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, model_type="mistral", head_dim=24, sliding_window=None),
            "vision_config": dict(TOWER, model_type="idefics2_vision"),
            "perceiver_config": {
                "hidden_size": 96,
                "resampler_n_latents": 8,
                "resampler_depth": 2,
                "resampler_n_heads": 4,
                "resampler_head_dim": 16,
                "num_key_value_heads": 2,
            },
            "image_token_id": 5,
        },
        depth=BOTH,
        image_tokens=8,
        reads=1,
    ),
    Family(
        "glm4v",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, rope_parameters=dict(_QWEN_ROPE, partial_rotary_factor=0.5, mrope_section=[2, 2, 2])),
            "vision_config": _GLM_TOWER,
            "image_token_id": 5,
        },
        depth=("text_config.num_hidden_layers", "vision_config.depth"),
        image_size=112,
        image_tokens=16,
    ),
    Family(
        "glm4v_moe",
        "image_text_to_text",
        {
            "text_config": dict(
                DECODER,
                head_dim=24,
                rope_parameters=dict(_QWEN_ROPE, partial_rotary_factor=0.5, mrope_section=[2, 2, 2]),
                n_routed_experts=4,
                n_shared_experts=1,
                num_experts_per_tok=2,
                moe_intermediate_size=88,
                n_group=1,
                topk_group=1,
                first_k_dense_replace=1,
            ),
            "vision_config": _GLM_TOWER,
            "image_token_id": 5,
        },
        depth=("text_config.num_hidden_layers", "vision_config.depth"),
        image_size=112,
        image_tokens=16,
        without=MOE | {"lora"},  # an adapter on the tower's convolution is not modelled
    ),
    Family(
        "fuyu",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, model_type="persimmon", num_key_value_heads=4),
            "patch_size": 14,
            "image_token_id": 5,
        },
        depth=("text_config.num_hidden_layers",),
        image_size=112,
        image_tokens=64,
    ),
    Family(
        "mistral3",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, model_type="mistral", head_dim=24, sliding_window=None),
            "vision_config": dict(TOWER, model_type="pixtral", head_dim=16),
            "image_token_id": 5,
            "spatial_merge_size": 2,
        },
        depth=BOTH,
        reads=16,
    ),
    Family(
        "llava_next",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, model_type="mistral", head_dim=24, sliding_window=None),
            "vision_config": dict(TOWER, model_type="clip_vision_model"),
            "image_token_index": 5,
            "image_grid_pinpoints": [[112, 224]],
        },
        depth=BOTH,
    ),
    Family(
        "llava_onevision",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, model_type="qwen2"),
            "vision_config": dict(TOWER, model_type="siglip_vision_model", vision_use_head=False),
            "image_token_id": 5,
            "image_grid_pinpoints": [[112, 224]],
        },
        depth=BOTH,
    ),
    Family(
        "mllama",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, model_type="mllama_text_model", cross_attention_layers=[1]),
            "vision_config": {
                "hidden_size": 64,
                "intermediate_size": 176,
                "attention_heads": 4,
                "image_size": 56,
                "patch_size": 14,
                "max_num_tiles": 4,
                "num_global_layers": 2,
                "vision_output_dim": 192,
                "intermediate_layers_indices": [0, 1],
            },
            "image_token_index": 5,
        },
        depth=BOTH,
    ),
    Family(
        "qwen3_vl",
        "image_text_to_text",
        {
            "text_config": dict(DECODER, head_dim=24, rope_parameters=_QWEN_ROPE),
            "vision_config": {
                **_SIZES,
                "out_hidden_size": 96,
                "num_heads": 4,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
                "num_position_embeddings": 64,
                "deepstack_visual_indexes": [0],
            },
            "image_token_id": 5,
        },
        depth=("text_config.num_hidden_layers", "vision_config.depth"),
        image_size=112,
        image_tokens=16,
    ),
)
