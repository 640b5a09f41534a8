"""What a vision transformer cuts its input into: an image into patches, a video into tubes, a spectrogram into overlapping squares.

Read in transformers 5.24 `models/<type>/modeling_<type>.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.memory import ops
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Parameter, Tensor
from memlint.typed import Any, NamedTuple


class Grid(NamedTuple):
    """`patches` of one input, the numbers that each is made of, and those of the whole input."""

    patches: int
    patch: int
    whole: int


def side_of(config: Mapping[str, Any], key: str, otherwise: int) -> int:
    """A size that is given once or per dimension."""
    value = config.get(key) or otherwise
    return int(value[0] if isinstance(value, (list, tuple)) else value)


def grid_of(config: Mapping[str, Any], side: int, frames: int) -> Grid:
    """The grid of an input `side` pixels wide whose patches span `frames` frames."""
    patch = side_of(config, "patch_size", 16)
    if "num_mel_bins" in config:
        bins, length = int(config["num_mel_bins"]), int(config.get("max_length") or 1024)
        rows = (bins - patch) // int(config.get("frequency_stride") or 10) + 1
        columns = (length - patch) // int(config.get("time_stride") or 10) + 1
        return Grid(rows * columns, patch * patch, bins * length)
    channels = int(config.get("num_channels") or config.get("in_channels") or 3)
    tubes = 1
    if "tubelet_size" in config:
        frames = int(config["tubelet_size"])
        tubes = int(config.get("num_frames") or 16) // frames
    return Grid((side // patch) ** 2 * tubes, channels * frames * patch * patch, channels * frames * tubes * side * side)


def sampled(m: Machine, table: Parameter, rows: int, width: int) -> Tensor:
    """Positions between the points of a learned grid (`F.grid_sample` in float32, GLM-4V): keeps the grid and where it is read."""
    wide, places = ops.cast(m, table, FP32), m.new(2 * rows, FP32)
    numel = table.numel
    out = m.new(rows * width, FP32)
    out = m.tape.record(out, (wide,), lambda g: (m.new(numel, FP32),), (wide.storage, places.storage))
    return ops.cast(m, out, table.itemsize)
