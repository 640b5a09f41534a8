"""Tuners whose weights are vectors or small blocks, applied to a linear's input or output."""

from __future__ import annotations

from memlint.memory import algebra, ops
from memlint.memory.linear import base, product, unpacked
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Tensor
from memlint.memory.tuners.site import BNB, Forward, Site, base_to_add_to

FEED_FORWARD = ("down_proj", "fc2", "wo", "dense_4h_to_h", "c_proj", "w2")
"""Layers whose input IA3 scales (peft 0.21.2 `utils/constants.py`, `TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING`)."""


def ia3(site: Site) -> Forward:
    """`ia3/layer.py` and `ia3/bnb.py`: one factor for each input of a feed-forward layer, for each output of the others."""
    site.only(*BNB)
    layer = site.layer
    on_input = layer.name in site.option("feedforward_modules", FEED_FORWARD)
    vector = site.parameter("ia3_l", layer.fin if on_input else layer.fout)
    packed = layer.quantised is not None

    def forward(m: Machine, x: Tensor) -> Tensor:
        scaling, dtype = ops.scale(m, vector), x.itemsize
        if packed and not m.autocast:
            x = ops.cast(m, x, FP32)
        if on_input:
            inner = ops.mul(m, ops.cast(m, x, vector.itemsize), scaling)
            if not packed:
                inner = ops.cast(m, inner, dtype)
            result = base(m, layer, inner)
            del inner
        else:
            result = base(m, layer, x)
            wide = ops.mul(m, result, scaling)
            result = wide if packed else ops.cast(m, wide, result.itemsize)
            del wide
        return ops.copy(m, result) if packed else result

    return forward


def beft(site: Site) -> Forward:
    """`beft/layer.py`: a trained bias."""
    site.only()
    layer, bias = site.layer, site.parameter("beft_bias", site.fout)

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        return ops.cast(m, ops.add(m, result, bias), result.itemsize)

    return forward


def miss(site: Site) -> Forward:
    """`miss/layer.py` (Bone before peft 0.19): the input is summed over groups of r features, and multiplied by a block (r x out).

    "mini" repeats a narrower block; "bat" makes a new weight in each forward pass, W + W B + B block by block.
    """
    layer, rank, p = site.layer, site.rank(64), site.dropout("miss_dropout")
    kind = site.option("init_weights", True)
    if kind == "bat":
        return _bat(site, rank)
    site.only(*BNB, "hqq", "gptq", "awq", "torchao")
    narrow = int(site.option("mini_r", 1)) if kind == "mini" else layer.fout
    block = site.parameter("miss_block", rank, narrow)

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base_to_add_to(m, layer, x)
        whole: Tensor = block if narrow == layer.fout else algebra.linear_function(m, block, rank * layer.fout)
        rows, groups = x.numel // layer.fin, -(-layer.fin // rank)
        if layer.fin % rank:
            x = ops.pad(m, x, rows * groups * rank)
        x = ops.cast(m, x, block.itemsize)
        low = ops.sum_groups(m, ops.dropout(m, x, p), rows * rank)
        result = ops.add(m, result, product(m, low, whole, None, rank, layer.fout))
        del low
        return ops.cast(m, result, dtype)

    return forward


def _bat(site: Site, rank: int) -> Forward:
    layer = site.layer
    block = site.parameter("miss_block", layer.fout // rank, rank, rank)
    size = site.elements

    def update(m: Machine, weight: Tensor) -> Tensor:
        wide = ops.cast(m, weight, block.itemsize)
        blocks = algebra.reordered(m, wide)
        repeated = layer.fin // rank * block.numel
        turned = ops.matmul(m, ops.copy(m, blocks), algebra.linear_function(m, block, repeated), size)
        added = ops.add(m, turned, block)
        del turned
        return ops.copy(m, added)

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        weight = m.new(size, unpacked(m, layer).itemsize)
        delta = update(m, weight)
        weight = ops.add(m, weight, delta)
        x = ops.cast(m, x, weight.itemsize)
        bias = ops.cast(m, layer.bias, weight.itemsize) if layer.bias is not None else None
        result = product(m, x, weight, bias, layer.fin, layer.fout)
        result = ops.cast(m, result, dtype)
        del delta
        return result

    return forward


def road(site: Site) -> Forward:
    """`road/layer.py` and `road/bnb.py`: pairs of outputs are turned and scaled; one angle and one scale for two, one or half an output."""
    site.only(*BNB)
    layer, variant = site.layer, site.option("variant", "road_1")
    size = {"road_1": layer.fout // 2, "road_2": layer.fout, "road_4": layer.fout * 2}[variant]
    angle, strength = site.parameter("road_theta", size), site.parameter("road_alpha", size)

    def columns(m: Machine) -> tuple[Tensor, Tensor]:
        if variant == "road_4":
            halves = (size // 2, size // 2)
            first, second = ops.split(m, angle, halves)
            cosine, sine = (ops.copy(m, ops.unary(m, half)) for half in (first, second))
            scales = [ops.copy(m, half) for half in ops.split(m, strength, halves)]
            return ops.mul(m, scales[0], cosine), ops.mul(m, scales[1], sine)
        turn, scale = (
            (algebra.linear_function(m, v, layer.fout) for v in (angle, strength)) if variant == "road_1" else (angle, strength)
        )
        cosine, sine = ops.unary(m, turn), ops.unary(m, turn)
        return ops.mul(m, scale, cosine), ops.mul(m, scale, sine)

    def turned(m: Machine, x: Tensor) -> Tensor:
        first, second = columns(m)
        halves = ops.split(m, x, (x.numel // 2, x.numel - x.numel // 2))
        rotated = ops.concat(m, (ops.scale(m, halves[1]), halves[0]))
        return ops.add(m, ops.mul(m, x, first), ops.mul(m, rotated, second))

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        dtype = result.itemsize
        if layer.quantised is None or not m.autocast:
            result = ops.cast(m, result, angle.itemsize)
        result = turned(m, result)
        return ops.cast(m, result, dtype) if layer.quantised is None else result

    return forward
