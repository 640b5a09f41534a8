"""Tiny configs of models that see or hear: vision transformers, dual encoders, speech, vision-language models."""

from __future__ import annotations

from dataclasses import replace

from .family import VOCAB, Family

_NO_MASK = frozenset({"mask"})
_SIZES = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4}
_VIT = dict(_SIZES, image_size=176, patch_size=16, num_labels=10)
_TEXT = dict(_SIZES, vocab_size=VOCAB, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_DECODER = dict(_TEXT, num_key_value_heads=2, hidden_size=96, tie_word_embeddings=False)
_TOWER = dict(_SIZES, image_size=112, patch_size=14)
_BOTH = ("text_config.num_hidden_layers", "vision_config.num_hidden_layers")

_WHISPER = {
    "d_model": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 176,
    "decoder_ffn_dim": 176,
    "vocab_size": VOCAB,
    "num_mel_bins": 40,
    "max_source_positions": 200,
    "max_target_positions": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
WAVE = dict(
    _SIZES,
    vocab_size=32,
    conv_dim=[48, 48, 48],
    conv_kernel=[10, 3, 2],
    conv_stride=[5, 2, 2],
    num_feat_extract_layers=3,
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4,
    layerdrop=0.0,
    apply_spec_augment=False,
    classifier_proj_size=32,
    num_labels=10,
)

_FAMILIES = (
    Family("vit", "image_classification", _VIT, without=_NO_MASK),
    Family("dinov2", "image_classification", dict(_VIT, mlp_ratio=4), without=_NO_MASK),
    Family("deit", "image_classification", _VIT, without=_NO_MASK),
    Family("beit", "image_classification", _VIT, without=_NO_MASK),
    Family(
        "clip",
        "contrastive",
        {"text_config": _TEXT, "vision_config": _TOWER, "projection_dim": 48},
        depth=_BOTH,
    ),
    Family(
        "clip",
        "image_classification",
        {"vision_config": _TOWER, "num_labels": 10},
        depth=("vision_config.num_hidden_layers",),
        use="vision",
        without=_NO_MASK,
    ),
    Family(
        "siglip",
        "contrastive",
        {"text_config": dict(_TEXT, projection_size=64), "vision_config": _TOWER},
        depth=_BOTH,
    ),
    Family(
        "siglip",
        "image_classification",
        {"vision_config": _TOWER, "num_labels": 10},
        depth=("vision_config.num_hidden_layers",),
        use="vision",
        without=_NO_MASK,
    ),
    Family("whisper", "speech_seq2seq", _WHISPER, depth=("encoder_layers", "decoder_layers"), without=_NO_MASK),
    Family("wav2vec2", "audio_classification", WAVE),
    Family("hubert", "audio_classification", WAVE),
    Family(
        "llava",
        "image_text_to_text",
        {
            "text_config": dict(_DECODER, model_type="llama"),
            "vision_config": dict(_TOWER, model_type="clip_vision_model"),
            "image_token_index": 5,
            "image_seq_length": 64,
        },
        depth=_BOTH,
    ),
    Family(
        "paligemma",
        "image_text_to_text",
        {
            "text_config": dict(_DECODER, model_type="gemma", head_dim=24),
            "vision_config": dict(_TOWER, model_type="siglip_vision_model", projection_dim=96, vision_use_head=False),
            "image_token_index": 5,
            "projection_dim": 96,
        },
        depth=_BOTH,
    ),
    Family(
        "gemma3",
        "image_text_to_text",
        {
            "text_config": dict(_DECODER, head_dim=24, sliding_window=4096, query_pre_attn_scalar=24),
            "vision_config": dict(_TOWER, vision_use_head=False),
            "mm_tokens_per_image": 16,
            "image_token_index": 5,
        },
        depth=_BOTH,
    ),
    Family(
        "qwen2_vl",
        "image_text_to_text",
        {
            "text_config": dict(
                _DECODER, rope_parameters={"rope_type": "default", "mrope_section": [4, 4, 4], "rope_theta": 1e4}
            ),
            "vision_config": {
                "embed_dim": 64,
                "hidden_size": 96,
                "num_heads": 4,
                "mlp_ratio": 3,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
            "image_token_id": 5,
        },
        depth=("text_config.num_hidden_layers", "vision_config.depth"),
        image_size=112,
    ),
    Family(
        "qwen2_5_vl",
        "image_text_to_text",
        {
            "text_config": dict(
                _DECODER, rope_parameters={"rope_type": "default", "mrope_section": [4, 4, 4], "rope_theta": 1e4}
            ),
            "vision_config": {
                "hidden_size": 64,
                "intermediate_size": 176,
                "out_hidden_size": 96,
                "num_heads": 4,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
                "window_size": 56,
                "fullatt_block_indexes": [1],
            },
            "image_token_id": 5,
        },
        depth=("text_config.num_hidden_layers", "vision_config.depth"),
        image_size=112,
    ),
)
_FROZEN = {"llava": "model.vision_tower", "gemma3": "model.vision_tower", "qwen2_vl": "model.visual"}
"""Vision-language models that are recorded with their tower frozen, too."""

MEDIA: tuple[Family, ...] = (
    *_FAMILIES,
    *(
        replace(family, use="frozen", frozen=_FROZEN[family.model_type], without=family.without | {"lora"})
        for family in _FAMILIES
        if family.model_type in _FROZEN
    ),
)
