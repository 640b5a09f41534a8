"""Tiny configs of image classifiers whose stages have sizes of their own, convolutional ones among them."""

from __future__ import annotations

from .family import Family

_NONE = frozenset({"mask", "sdpa", "checkpointing"})
"""Without attention, and without checkpointing of their layers."""


def _first_stage(layers: int) -> dict[str, list[int]]:
    return {"depths": [layers, 2]}


_MIX = {
    "num_encoder_blocks": 2,
    "hidden_sizes": [32, 64],
    "sr_ratios": [2, 1],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [4, 4],
}
_STAGES = {"hidden_sizes": [32, 64], "num_stages": 2, "num_labels": 10}

IMAGES: tuple[Family, ...] = (
    Family(
        "resnet",
        "image_classification",
        dict(_STAGES, embedding_size=24, layer_type="bottleneck"),
        depth=(),
        image_size=96,
        layer_list=_first_stage,
        without=_NONE | {"lora"},  # its one linear is the classifier
    ),
    Family(
        "resnet",
        "image_classification",
        dict(_STAGES, embedding_size=24, layer_type="basic"),
        depth=(),
        use="basic",
        image_size=96,
        layer_list=_first_stage,
        without=_NONE | {"lora"},
    ),
    Family(
        "swin",
        "image_classification",
        {"image_size": 64, "embed_dim": 32, "num_heads": [2, 4], "window_size": 4, "num_labels": 10},
        depth=(),
        layer_list=_first_stage,
        without=frozenset({"mask", "checkpointing"}),  # peft cannot hook its embeddings, which return a tuple
    ),
    Family(
        "swinv2",
        "image_classification",
        {"image_size": 64, "embed_dim": 32, "num_heads": [2, 4], "window_size": 4, "num_labels": 10},
        depth=(),
        layer_list=_first_stage,
        without=frozenset({"mask", "sdpa", "checkpointing"}),  # as Swin
    ),
    Family(
        "segformer",
        "image_classification",
        dict(_MIX, num_labels=10),
        depth=(),
        image_size=96,
        layer_list=_first_stage,
        without=frozenset({"mask", "reentrant"}),  # whose stages' layers get no input with a gradient from a frozen embedding
    ),
    Family(
        "segformer",
        "semantic_segmentation",
        dict(_MIX, num_labels=20, decoder_hidden_size=48),
        depth=(),
        use="segmentation",
        image_size=96,
        layer_list=_first_stage,
        without=frozenset({"mask", "reentrant"}),  # whose stages' layers get no input with a gradient from a frozen embedding
    ),
    Family(
        "efficientnet",
        "image_classification",
        {
            "image_size": 96,
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
            "kernel_sizes": [3, 5],
            "in_channels": [32, 16],
            "out_channels": [16, 24],
            "strides": [1, 2],
            "expand_ratios": [1, 6],
            "hidden_dim": 1280,
            "num_labels": 10,
        },
        depth=(),
        layer_list=lambda layers: {"num_block_repeats": [2, layers]},
        without=_NONE | {"lora"},
    ),
    Family(
        "convnext",
        "image_classification",
        dict(_STAGES, image_size=96),
        depth=(),
        layer_list=_first_stage,
        without=_NONE,
    ),
    Family(
        "convnextv2",
        "image_classification",
        dict(_STAGES, image_size=96),
        depth=(),
        layer_list=_first_stage,
        without=_NONE,
    ),
)
