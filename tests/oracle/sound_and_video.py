"""Tiny configs of models of sound and of videos."""

from __future__ import annotations

from .family import Family
from .media_families import WAVE
from .vision_language_families import DECODER

_NO_MASK = frozenset({"mask"})
_EAGER = frozenset({"sdpa"})
_SIZES = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4}

SOUND_AND_VIDEO: tuple[Family, ...] = (
    Family("wavlm", "audio_classification", dict(WAVE, num_buckets=40), without=_EAGER | {"checkpointing"}),
    Family(
        "audio-spectrogram-transformer",
        "audio_classification",
        dict(_SIZES, num_mel_bins=48, max_length=176, num_labels=10),
        without=_NO_MASK,
    ),
    Family(
        "videomae",
        "video_classification",
        dict(_SIZES, image_size=96, num_frames=4, num_labels=10),
        without=_NO_MASK,
    ),
    Family(
        "wav2vec2-bert",
        "audio_classification",
        dict(
            _SIZES,
            layerdrop=0.0,
            apply_spec_augment=False,
            num_labels=10,
            classifier_proj_size=32,
            feature_projection_input_dim=40,
        ),
        without=_EAGER | {"reentrant"},  # without an input embedding, adapters on attention alone get no gradient
    ),
    Family(
        "voxtral",
        "audio_text_to_text",
        {
            "text_config": dict(DECODER, model_type="llama", head_dim=24),
            "audio_config": {
                "hidden_size": 64,
                "intermediate_size": 256,
                "num_attention_heads": 4,
                "num_mel_bins": 40,
                "max_source_positions": 200,
            },
            "audio_token_id": 5,
        },
        depth=("text_config.num_hidden_layers", "audio_config.num_hidden_layers"),
        image_tokens=50,
    ),
    Family(
        "timesformer",
        "video_classification",
        dict(_SIZES, image_size=96, num_frames=4, num_labels=10),
        without=_NO_MASK | _EAGER | {"checkpointing"},
    ),
)
