"""How many bytes a quantised weight and its statistics take, by method."""

from __future__ import annotations

from memlint.memory.result import CannotEstimate
from memlint.memory.setup import Setup


def packed_bytes(setup: Setup, numel: int, fin: int, fout: int) -> tuple[int, tuple[int, ...]]:
    """Bytes of a packed weight and of its statistics tensors.

    bitsandbytes 0.43 `functional.py` `quantize_4bit` (block 64; double quantisation: 8-bit absmax with one float32 per 256 and
    two code tables) and `int8_vectorwise_quant`; auto-gptq/optimum `QuantLinear` buffers; torchao `NF4Tensor` (block 64, scaler
    block 256); hqq `HQQLinear` (half scale and zero per group of 64).
    """
    if setup.quantization == "bnb_4bit":
        blocks = -(-numel // 64)
        if setup.double_quant:
            return numel // 2, (blocks, -(-blocks // 256) * 4, 256 * 4, 16 * 4, 4)
        return numel // 2, (blocks * 4, 16 * 4)
    if setup.quantization == "bnb_8bit":
        return numel, (fout * 4,)
    if setup.quantization == "torchao_nf4":
        blocks = -(-numel // 64)
        return numel // 2, (blocks, -(-blocks // 256) * setup.compute_itemsize, 16 * setup.compute_itemsize)
    groups = -(-fin // max(setup.group_size, 1)) * fout
    packed = numel * setup.bits // 8
    if setup.quantization == "gptq":
        return packed, (groups * 2, groups * setup.bits // 8, fin * 4)
    if setup.quantization == "awq":
        return packed, (groups * 2, groups * setup.bits // 8)
    if setup.quantization == "hqq":
        return packed, (groups * 2, groups * 2)
    raise CannotEstimate(f"quantization.method {setup.quantization} is not modelled")
