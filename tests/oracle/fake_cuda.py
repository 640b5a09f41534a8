"""A CUDA device without CUDA: fake tensors whose dispatch keys are those of a CUDA tensor.

Autocast, dropout, softmax and layer norm then take the path that they take on a GPU, because PyTorch chooses it by the dispatch
key. Three things must be supplied where there is no GPU: a device guard (a CPU build registers none), the permission to enable
CUDA autocast, and the choice of the attention kernel, which is compiled into CUDA builds only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import DefaultDeviceType

_MODE = FakeTensorMode(allow_non_fake_inputs=True)
_CUDA, _META = 1, 14  # c10/core/DeviceType.h
_KERNELS = torch.library.Library("aten", "IMPL", "CUDA")
"""Kernels of CUDA builds in whose absence a CPU build would take the operation apart into others."""


def _install_device_guard() -> None:
    """Let operations on CUDA tensors take a device guard that does nothing (that of the meta device)."""
    if torch.backends.cuda.is_built():
        torch._C._ensureCUDADeviceGuardSet()
        return
    c10 = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    registry = (ctypes.c_void_p * 22).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    registry[_CUDA] = registry[_CUDA] or registry[_META]
    _KERNELS.impl("silu_backward", lambda gradient, x: torch.empty_like(x))
    _KERNELS.impl("_fused_rms_norm", _rms_norm)
    _KERNELS.impl("_fused_rms_norm_backward", _rms_norm_backward)


def _rms_norm(x: torch.Tensor, shape: list[int], weight: Any, eps: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and one float32 for each row (layer_norm_kernel.cu, _fused_rms_norm_cuda)."""
    return torch.empty_like(x), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


def _rms_norm_backward(gradient: Any, x: torch.Tensor, shape: Any, rstd: Any, weight: Any, mask: list[bool]) -> tuple[Any, Any]:
    return torch.empty_like(x) if mask[0] else None, torch.empty_like(weight) if mask[1] else None


def _pad_head(t: torch.Tensor) -> torch.Tensor:
    """Head dims are padded to a multiple of 8 before the flash kernel (pad_last_dim in transformers/attention.cpp)."""
    rest = -t.shape[-1] % 8
    return F.pad(t, (0, rest)) if rest else t


def _bias(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The mask as the efficient kernel takes it: additive, last dim padded to a multiple of 16, expanded (preprocess_mask)."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    rest = -mask.shape[-1] % 16
    if rest:
        mask = F.pad(mask, (0, rest))[..., : mask.shape[-1]]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """scaled_dot_product_attention with the kernel that an sm80+ card takes: flash, else memory-efficient, else math.

    Follows ATen/native/transformers/attention.cpp and cuda/sdp_utils.cpp of torch 2.13 for dense inputs. cuDNN attention,
    preferred on some cards, keeps the same tensors as flash.
    """
    if torch.is_autocast_enabled("cuda"):  # sdpa is on the lower-precision list of CUDA autocast
        to = torch.get_autocast_dtype("cuda")
        query, key, value = query.to(to), key.to(to), value.to(to)
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(to)
    with torch.autocast("cuda", enabled=False):
        half = query.dtype in (torch.float16, torch.bfloat16)
        same_head = query.shape[-1] == key.shape[-1] == value.shape[-1]
        grouped = query.shape[1] != key.shape[1]
        if half and attn_mask is None and same_head and query.shape[-1] <= 256 and (enable_gqa or not grouped):
            factor = scale if scale is not None else query.shape[-1] ** -0.5
            out = torch.ops.aten._scaled_dot_product_flash_attention(
                _pad_head(query), _pad_head(key), _pad_head(value), dropout_p, is_causal, False, scale=factor
            )[0]
            return out[..., : query.shape[-1]]
        # torch 2.13 groups heads in the flash kernel only
        aligned = all(t.shape[-1] % (8 if half else 4) == 0 for t in (query, value))
        if not grouped and aligned and query.shape[-1] == key.shape[-1]:
            bias = None if attn_mask is None else _bias(attn_mask, query, key)
            needs_grad = query.requires_grad or key.requires_grad or value.requires_grad
            return torch.ops.aten._scaled_dot_product_efficient_attention(
                query, key, value, bias, needs_grad and torch.is_grad_enabled(), dropout_p, is_causal, scale=scale
            )[0]
        return torch._C._nn.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )


@contextmanager
def fake_cuda() -> Iterator[None]:
    """Everything inside lives on fake CUDA tensors (new tensors too, unless they name another device)."""
    _install_device_guard()
    with (
        patch.object(F, "scaled_dot_product_attention", _attention),
        patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        patch.object(torch.cuda, "is_bf16_supported", lambda: True),
        patch.object(torch.cuda, "get_device_capability", lambda device=None: (8, 0)),
        patch.object(DefaultDeviceType, "get_device_type", lambda: "cuda"),  # what checkpointing without a tensor argument takes
        _MODE,
        torch.device("cuda"),
    ):
        yield
