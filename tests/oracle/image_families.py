"""Tiny configs of image classifiers whose stages have sizes of their own, convolutional ones among them."""

from __future__ import annotations

from .family import Family

_NONE = frozenset({"mask", "sdpa", "checkpointing"})
"""Without attention, and without checkpointing of their layers."""


def _first_stage(layers: int) -> dict[str, list[int]]:
    return {"depths": [layers, 2]}


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
