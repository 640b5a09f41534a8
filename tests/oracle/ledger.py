"""What lives on the device: every storage an operation creates, until its last reference is gone."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def rounded(nbytes: int) -> int:
    """The block that the caching allocator takes: a multiple of 512 bytes (c10/core/AllocatorConfig.h, kMinBlockSize)."""
    return -(-nbytes // 512) * 512


def _flash_workspace(query: torch.Tensor, key: torch.Tensor) -> int:
    """What the flash backward kernel allocates for itself (transformers/cuda/flash_attn/flash_api.cpp, mha_bwd).

    A float32 accumulator for the query gradient and one float32 per row, over rows rounded up to 128 and head dims to 32; with
    grouped heads, the key and value gradients of all query heads.
    """
    batch, heads, rows, dim = query.shape
    padded = batch * heads * -(-rows // 128) * 128
    wide = 0 if key.shape[1] == heads else 2 * rounded(batch * heads * key.shape[2] * dim * query.element_size())
    return rounded(padded * -(-dim // 32) * 32 * 4) + rounded(padded * 4) + wide


def _efficient_workspace(query: torch.Tensor, value: torch.Tensor) -> int:
    """The same of the memory-efficient kernel (cuda/attention_backward.cu, mem_eff_attention/kernel_backward.h, cutlassB.h).

    A float32 for each row, and the query gradient in float32, in tiles whose size depends on the widest head.
    """
    batch, heads, rows, dim = query.shape
    widest = max(dim, value.shape[-1])
    high, wide = (64, 64) if widest <= 64 else (128, 128) if widest <= 128 else (128, 64)
    return rounded(batch * heads * rows * 4) + rounded(batch * heads * -(-rows // high) * high * -(-dim // wide) * wide * 4)


@dataclass
class Block:
    """One storage: its exact bytes, the operation that made it, and the weight it is a cast or copy of, if any."""

    nbytes: int
    operation: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    of_weight: bool = False


class Ledger(TorchDispatchMode):
    """Counts live storages on the CUDA device while active.

    `live` and `peak` (since the last `mark`) count allocator blocks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocks: dict[int, Block] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._outside: set[int] = set()
        self._weights: set[int] = set()
        self.live = self.peak = 0

    def ignore(self, tensors: Any, weights: bool = False) -> None:
        """Storages that exist already (the caller keeps them alive); casts of weights are marked as such."""
        keys = {t.untyped_storage()._cdata for t in tensors}
        self._outside |= keys
        self._weights |= keys if weights else set()

    def mark(self) -> None:
        """Start a new phase: the peak is what lives now."""
        self.peak = self.live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._scaled_dot_product_flash_attention_backward.default:
            produced = sum(rounded(t.untyped_storage().nbytes()) for t in out)
            self.peak = max(self.peak, self.live + produced + _flash_workspace(args[1], args[2]))
        if func is torch.ops.aten._scaled_dot_product_efficient_attention_backward.default:
            produced = sum(rounded(t.untyped_storage().nbytes()) for t in out if t is not None)
            self.peak = max(self.peak, self.live + produced + _efficient_workspace(args[1], args[3]))
        if func is torch.ops.aten._fft_c2c.default and len(args[1]) > 1:
            # cuFFT's buffer, which PyTorch allocates (native/cuda/SpectralOps.cpp), as large as the data in two dimensions
            self.peak = max(self.peak, self.live + 2 * rounded(out.untyped_storage().nbytes()))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "cuda":
                self._see(leaf, func, args)
        return out

    def _see(self, tensor: torch.Tensor, func: Any, args: Any) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._outside:
            return
        known = self._references.get(key)
        if known is not None and known() is not None:
            return
        nbytes = storage.nbytes()
        cast = func is torch.ops.aten._to_copy.default and args[0].untyped_storage()._cdata in self._weights
        self.blocks[key] = Block(nbytes, str(func), tensor.dtype, tuple(tensor.shape), cast)
        self.live += rounded(nbytes)
        self.peak = max(self.peak, self.live)

        def gone(_: object, key: int = key) -> None:
            block = self.blocks.pop(key)
            self._references.pop(key, None)
            self.live -= rounded(block.nbytes)

        self._references[key] = weakref.ref(storage, gone)
