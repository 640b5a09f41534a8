"""GPUs by the names people write, with the memory that PyTorch can really use on them. Data is read on first use."""

from memlint.gpus.gpu import Gpu, all_gpus, common_gpus
from memlint.gpus.names import find, sizes, suggest

__all__ = ["Gpu", "all_gpus", "common_gpus", "find", "sizes", "suggest"]
