"""The arguments of a model's forward call, by head: tokens, images, spectrograms, sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .family import BATCH, SEQUENCE, Family
from .regime import Regime

Given = dict[str, Any]


class _Bounds(list[int]):
    """Where the images of a batch begin, as the Qwen-VL towers read it: they need values, which a fake tensor does not have."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return _Bounds(found) if isinstance(index, slice) else found

    def __sub__(self, other: list[int]) -> _Bounds:
        return _Bounds(a - b for a, b in zip(self, other, strict=True))

    def tolist(self) -> list[int]:
        return list(self)


def inputs(family: Family, regime: Regime, batch: int = BATCH, sequence: int = SEQUENCE) -> Given:
    """The arguments of the forward call, on the current device."""
    return HEADS.get(family.head, _tokens)(family, regime, batch, sequence)


def _tokens(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    ids = torch.zeros(batch, sequence, dtype=torch.long)
    given: Given = {"input_ids": ids, "labels": ids.clone()}
    if family.head == "causal_lm" or "num_key_value_heads" in family.config:  # a decoder; the Trainer asks for none, either
        given["use_cache"] = False
    if family.model_type == "layoutlmv3":
        given |= {"bbox": torch.zeros(batch, sequence, 4, dtype=torch.long)}
        given |= {"pixel_values": _pixels({"image_size": family.config["input_size"]}, regime, batch)}
    if family.head == "sequence_classification":
        given["labels"] = torch.zeros(batch, dtype=torch.long)
    if family.head == "question_answering":
        del given["labels"]
        given |= {name: torch.zeros(batch, dtype=torch.long) for name in ("start_positions", "end_positions")}
    if regime.mask:
        given["attention_mask"] = torch.ones(batch, sequence, dtype=torch.long)
    return given


def _side(config: Any) -> int:
    side = config["image_size"]
    return int(side[0] if isinstance(side, list) else side)


def _pixels(config: Any, regime: Regime, images: int) -> torch.Tensor:
    side = _side(config)
    return torch.zeros(images, 3, side, side, dtype=getattr(torch, regime.weights))


def _image(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    config = family.config.get("vision_config", family.config)
    pixels = _pixels(config if "image_size" in config else {"image_size": family.image_size}, regime, batch)
    return {"pixel_values": pixels, "labels": torch.zeros(batch, dtype=torch.long)}


def _segments(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    """An image, and a class for each of its pixels."""
    given = _image(family, regime, batch, sequence)
    return {**given, "labels": torch.zeros(batch, family.image_size, family.image_size, dtype=torch.long)}


def _pair(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    given = _tokens(family, regime, batch, sequence)
    del given["labels"]
    return {**given, "pixel_values": _pixels(family.config["vision_config"], regime, batch), "return_loss": True}


def _speech(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    """Whisper: a spectrogram of full length and the text."""
    bins, frames = family.config["num_mel_bins"], 2 * family.config["max_source_positions"]
    features = torch.zeros(batch, bins, frames, dtype=getattr(torch, regime.weights))
    return {"input_features": features, "labels": torch.zeros(batch, sequence, dtype=torch.long)}


def _wave(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    """A sound that the convolutions turn into `sequence` frames, or its spectrogram."""
    if "conv_kernel" not in family.config:
        return _spectrogram(family, regime, batch, sequence)
    samples = sequence
    for kernel, stride in reversed(list(zip(family.config["conv_kernel"], family.config["conv_stride"], strict=True))):
        samples = (samples - 1) * stride + kernel
    given: Given = {
        "input_values": torch.zeros(batch, samples, dtype=getattr(torch, regime.weights)),
        "labels": torch.zeros(batch, dtype=torch.long),
    }
    if regime.mask:
        given["attention_mask"] = torch.ones(batch, samples, dtype=torch.long)
    return given


def _spectrogram(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    """A spectrogram of full length (AST), or of as many frames as there are tokens (Wav2Vec2-BERT)."""
    frames = family.config.get("max_length", sequence)
    bins = family.config.get("num_mel_bins") or family.config["feature_projection_input_dim"]
    features = torch.zeros(batch, frames, bins, dtype=getattr(torch, regime.weights))
    name = "input_values" if "max_length" in family.config else "input_features"
    given: Given = {name: features, "labels": torch.zeros(batch, dtype=torch.long)}
    if regime.mask:
        given["attention_mask"] = torch.ones(batch, frames, dtype=torch.long)
    return given


def _video(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    pixels = _pixels(family.config, regime, batch * family.config["num_frames"])
    pixels = pixels.view(batch, family.config["num_frames"], *pixels.shape[1:])
    return {"pixel_values": pixels, "labels": torch.zeros(batch, dtype=torch.long)}


def _images_in_text(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    """One image in each sample of text."""
    given = _tokens(family, regime, batch, sequence)
    given["use_cache"] = False
    if family.model_type == "fuyu":
        side, width = family.image_size // family.config["patch_size"], 3 * family.config["patch_size"] ** 2
        return {**given, "pixel_values": torch.zeros(batch, side * side, width, dtype=getattr(torch, regime.weights))}
    vision = family.config["vision_config"]
    if "spatial_merge_size" in vision:
        return {**given, **_patches(vision, regime, batch, sequence, family.image_size)}
    if family.model_type.startswith("gemma4"):
        return {**given, **_placed(family, regime, batch, sequence)}
    if family.model_type == "gemma3":
        given["token_type_ids"] = torch.zeros(batch, sequence, dtype=torch.long)
    if family.model_type == "paligemma":
        given["token_type_ids"] = torch.zeros(batch, sequence, dtype=torch.long)
    if family.model_type == "mllama":
        return {**given, **_padded_tiles(vision, regime, batch, sequence)}
    pixels = _pixels(vision, regime, batch * TILES.get(family.model_type, 1))
    if family.model_type in TILES:
        pixels = pixels.view(batch, TILES[family.model_type], *pixels.shape[1:])
    if family.model_type in SIZED:
        given["image_sizes"] = [[_side(vision), _side(vision) * (TILES.get(family.model_type, 2) - 1)]] * batch
    return {**given, "pixel_values": pixels}


TILES = {"llava_next": 3, "llava_onevision": 3, "idefics3": 3, "smolvlm": 3, "idefics2": 1}
"""Pieces of an image that go through the tower: the whole and, with the grid of the configs here, two halves."""

SIZED = {"llava_next", "llava_onevision", "mistral3"}
"""Types that take the sizes of the images."""


def _padded_tiles(vision: Any, regime: Regime, batch: int, sequence: int) -> Given:
    """Llama 3.2 Vision: all tiles that an image may fill, and which of them each token sees."""
    tiles = vision["max_num_tiles"]
    pixels = _pixels(vision, regime, batch * tiles)
    return {
        "pixel_values": pixels.view(batch, 1, tiles, *pixels.shape[1:]),
        "aspect_ratio_ids": torch.zeros(batch, 1, dtype=torch.long),
        "aspect_ratio_mask": torch.ones(batch, 1, tiles, dtype=torch.long),
        "cross_attention_mask": torch.ones(batch, sequence, 1, tiles, dtype=torch.long),
    }


def _placed(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    """Gemma 4: the patches of each image and their places; without a tower they are as large as what its pooling would join."""
    vision = family.config["vision_config"]
    patch = vision["patch_size"] * (1 if "hidden_size" in vision else vision["pooling_kernel_size"])
    each = (family.image_size // patch) ** 2
    return {
        "pixel_values": torch.zeros(batch, each, 3 * patch**2, dtype=getattr(torch, regime.weights)),
        "image_position_ids": torch.zeros(batch, each, 2, dtype=torch.long),
        "mm_token_type_ids": torch.zeros(batch, sequence, dtype=torch.long),
    }


def _patches(vision: Any, regime: Regime, batch: int, sequence: int, side: int) -> Given:
    """Qwen-VL: the patches of all images in one row, and what its tower would read off their sizes."""
    across, merge = side // vision["patch_size"], vision["spatial_merge_size"]
    each = across * across
    width = 3 * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    given: Given = {
        "pixel_values": torch.zeros(batch * each, width, dtype=getattr(torch, regime.weights)),
        "image_grid_thw": _Grid(batch, each // merge**2),
        "position_ids": torch.zeros(3, batch, sequence, dtype=torch.long),
        "image_position_ids": torch.zeros(batch * each, 2, dtype=torch.long),
        "image_cu_seqlens": _Bounds(i * each for i in range(batch + 1)),
    }
    if "window_size" in vision:
        window = vision["window_size"] // vision["patch_size"]
        assert across % window == 0
        given["image_window_index"] = torch.zeros(batch * each // merge**2, dtype=torch.long)
        given["image_cu_window_seqlens"] = _Bounds(i * window**2 for i in range(batch * each // window**2 + 1))
    return given


def _sound_in_text(family: Family, regime: Regime, batch: int, sequence: int) -> Given:
    """One spectrogram of full length in each sample of text."""
    audio = family.config["audio_config"]
    features = torch.zeros(batch, audio["num_mel_bins"], 2 * audio["max_source_positions"], dtype=getattr(torch, regime.weights))
    return {**_tokens(family, regime, batch, sequence), "use_cache": False, "input_features": features}


class _Grid:
    """`image_grid_thw`, of which only the tokens of each image are read."""

    def __init__(self, images: int, tokens: int) -> None:
        self.images, self.tokens = images, tokens

    def __getitem__(self, places: Any) -> torch.Tensor:
        return torch.zeros_like(places[0])  # the side of each patch's image (GLM-4V)

    def prod(self, dim: int) -> _Bounds:
        return _Counts([self.tokens] * self.images)


class _Counts(_Bounds):
    def __floordiv__(self, by: int) -> _Bounds:
        return self


HEADS: dict[str, Callable[[Family, Regime, int, int], Given]] = {
    "image_classification": _image,
    "semantic_segmentation": _segments,
    "contrastive": _pair,
    "speech_seq2seq": _speech,
    "audio_classification": _wave,
    "video_classification": _video,
    "image_text_to_text": _images_in_text,
    "audio_text_to_text": _sound_in_text,
}
