"""Into how many pieces an image is cut before a vision tower sees it, the whole image among them.

Processors of transformers 5.24 choose them by the image's shape, which no file of a run states: the estimate is for a photograph of
640 x 480 pixels (most of COCO), bounded by the fewest and the most that the processor makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memlint.typed import Any

PHOTO = (480, 640)

CUT = {"idefics3": (13, 5, 17), "smolvlm": (13, 5, 17), "internvl": (13, 1, 13)}
"""Model type -> (for the photograph, fewest, most). Idefics3 and SmolVLM stretch the longer edge to four pieces
(`image_processing_idefics3.py`, size 4 * 364 and max_image_size 364); InternVL takes the grid of at most twelve pieces that is
nearest in shape, and the whole (`processing_internvl.py` crop_to_patches, `image_processing_got_ocr2.py` max_patches)."""


def tiles_of(model_type: str, config: Mapping[str, Any]) -> tuple[int, ...]:
    """What is expected, then what bounds it; nothing for a type that takes images whole."""
    pinpoints = config.get("image_grid_pinpoints")
    vision = config.get("vision_config")
    if not isinstance(pinpoints, Sequence) or not pinpoints or not isinstance(vision, Mapping):
        return CUT.get(model_type, ())
    side = int(vision.get("image_size") or 336)
    counts = [1 + (height // side) * (width // side) for height, width in pinpoints]
    return counts[pinpoints.index(_best(pinpoints))], min(counts), max(counts)


def _best(pinpoints: Sequence[Sequence[int]]) -> Sequence[int]:
    """The resolution that keeps most of the photograph and wastes least (`image_processing_utils.py`, `select_best_resolution`)."""

    def fit(resolution: Sequence[int]) -> tuple[int, int]:
        scale = min(resolution[1] / PHOTO[1], resolution[0] / PHOTO[0])
        kept = min(int(PHOTO[1] * scale) * int(PHOTO[0] * scale), PHOTO[0] * PHOTO[1])
        return kept, kept - resolution[0] * resolution[1]

    return max(pinpoints, key=fit)
