"""What enters a model beside its tokens: images, latents, text conditions; and which of its parts are trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.typed import Any, NamedTuple


class Media(NamedTuple):
    """Sizes a sample; 0 where a run has no such thing."""

    images: int
    tiles: int
    """Pieces of an image that the tower sees."""
    image_size: int
    """Side in pixels; 0: the model's own."""
    max_pixels: int
    """Cap of an image after resizing; 0: none stated."""
    latent_tokens: int
    text_tokens: int
    target_length: int
    """Tokens of the decoder's side of an encoder-decoder; 0: as many as the encoder's."""
    vision_trained: bool
    aligner_trained: bool
    language_trained: bool
    tower: Mapping[str, Any]
    """A vision tower that the run describes because the model's own configuration has none (`model.vision_config`)."""


def media_of(get: Callable[[str, Any], Any]) -> Media:
    """Read the facts. An image size or a pixel cap without a number of images means one image a sample."""
    size, pixels = int(get("batch.image_size", 0) or 0), int(get("vision.max_pixels", 0) or 0)
    return Media(
        images=int(get("batch.images", 1 if size or pixels else 0) or 0),
        tiles=int(get("batch.image_tiles", 1) or 1),
        image_size=size,
        max_pixels=pixels,
        latent_tokens=int(get("batch.latent_tokens", 0) or 0),
        text_tokens=int(get("batch.text_tokens", 0) or 0),
        target_length=int(get("batch.completion_length", 0) or 0),
        vision_trained=bool(get("vision.trainable", True)),
        aligner_trained=bool(get("vision.aligner_trainable", True)),
        language_trained=bool(get("vision.llm_trainable", True)),
        tower=get("model.vision_config", None) or {},
    )
