"""What models with images read off the values of tensors, which fake tensors do not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import masking_utils
from transformers.modeling_outputs import MoeCausalLMOutputWithPast
from transformers.models.pixtral import modeling_pixtral
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe
from transformers.models.qwen3_vl import modeling_qwen3_vl
from transformers.models.qwen3_vl_moe import modeling_qwen3_vl_moe

from .family import BATCH, Family

_INTERPOLATING = (modeling_qwen3_vl, modeling_qwen3_vl_moe, modeling_qwen3_5, modeling_qwen3_5_moe)


class _Picks(TorchDispatchMode):
    """An index that is a boolean mask becomes one of numbers: a mask of images selects all, one of tokens those of an image."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_):
            indices: list[torch.Tensor | None] = []
            for index in args[1]:
                if index is not None and index.dtype == torch.bool:
                    indices += self._places(index)
                else:
                    indices.append(index)
            args = (args[0], indices, *args[2:])
        return func(*args, **(kwargs or {}))

    def _places(self, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """`mask.nonzero().unbind(1)`."""
        count = mask.numel() if mask.dim() == 1 else self.tokens * mask.shape[0]
        return torch.zeros(count, mask.dim(), dtype=torch.long, device=mask.device).unbind(1)


def _blocks(lengths: list[int], x: torch.Tensor) -> torch.Tensor:
    """Pixtral: every image sees itself; the places are numbers here, not tensors made on the default device."""
    mask = torch.full((x.shape[1], x.shape[1]), fill_value=torch.finfo(x.dtype).min, dtype=x.dtype, device=x.device)
    return mask[None, None, :, :].expand(x.shape[0], 1, -1, -1)


@contextmanager
def values(family: Family, batch: int = BATCH) -> Iterator[None]:
    """Everything inside finds the values that it asks for."""

    def interpolation(grid: Any, **rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
        patches = batch * family.image_tokens * 4
        return torch.zeros(patches, 4, dtype=torch.long), torch.zeros(patches, 4)

    def ignores(padding: Any, *rest: Any, **named: Any) -> bool:
        return family.head == "image_text_to_text" or bool(
            seen(padding, *rest, **named)
        )  # the pieces of an image have no padding

    seen = masking_utils._ignore_bidirectional_mask_sdpa
    with (
        ExitStack() as stack,
        patch.object(FakeTensor, "tolist", lambda numbers: [family.reads] * len(numbers)),
        patch.object(masking_utils, "_ignore_bidirectional_mask_sdpa", ignores),
        # A field that Llama 4 reads off its decoder's output, which has none (transformers 5.24).
        patch.object(MoeCausalLMOutputWithPast, "image_outputs", None, create=True),
        patch.object(torch.distributions.Distribution, "_validate_args", False),
        patch.object(modeling_pixtral, "generate_block_attention_mask", _blocks),
        _Picks(family.image_tokens),
    ):
        for module in _INTERPOLATING:
            stack.enter_context(patch.object(module, "get_vision_interpolation_indices_and_weights", interpolation))
        yield
