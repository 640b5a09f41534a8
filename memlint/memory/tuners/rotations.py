"""Tuners that turn a linear's input by orthogonal matrices."""

from __future__ import annotations

from memlint.memory import algebra, ops
from memlint.memory.linear import base, product
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, INT64, Tensor
from memlint.memory.tuners.site import BNB, Forward, Site


def skew(m: Machine, weight: Tensor, index: Tensor, numel: int) -> Tensor:
    """Q - Q^T of a matrix whose upper half is the weight."""
    filled = algebra.filled(m, weight, index, numel)
    turned = algebra.negated_sum(m, filled)
    del filled
    return turned


def cayley(m: Machine, q: Tensor, side: int) -> Tensor:
    """(I + Q)(I - Q)^-1 by a solver."""
    eye = m.new(side * side, FP32)
    left, right = ops.shift(m, q), ops.scale(m, q)
    out = algebra.solve(m, left, right, side)
    del eye, left, right
    return out


def neumann(m: Machine, q: Tensor, side: int, terms: int) -> Tensor:
    """Its series up to that many terms: the powers of Q are kept."""
    eye = m.new(side * side, q.itemsize)
    out = m.new(q.numel, q.itemsize)
    del eye
    if terms <= 1:
        return out
    out = algebra.add_into(m, out, algebra.doubled(m, q))
    if terms > 2:
        power = ops.matmul(m, q, q, q.numel)
        out = algebra.add_into(m, out, algebra.doubled(m, power))
        for _ in range(3, terms - 1):
            power = ops.matmul(m, power, q, q.numel)
            out = algebra.add_into(m, out, algebra.doubled(m, power))
        power = ops.matmul(m, power, q, q.numel)
        out = algebra.add_into(m, out, power)
    return out


def oft(site: Site) -> Forward:
    """`oft/layer.py`: the input is turned block by block before it enters the layer."""
    site.only(*BNB, "hqq", "gptq", "awq", "torchao")
    layer, count = site.layer, site.builder.setup.adapter_rank or int(site.option("r", 0))
    block = int(site.option("oft_block_size", 0 if count else 32))
    if block:
        block = _divisor(layer.fin, block)
    else:
        block = layer.fin // _divisor(layer.fin, count)
    blocks = layer.fin // block
    shared = bool(site.option("block_share", False))
    own = 1 if shared else blocks
    weight = site.parameter("oft_R.weight", own, block * (block - 1) // 2)
    index = [site.buffer(block * (block - 1) // 2, INT64) for _ in range(2)]
    terms, constrained = int(site.option("num_cayley_neumann_terms", 5)), bool(site.option("coft", False))
    series = bool(site.option("use_cayley_neumann", True))
    size = own * block * block

    def rotation(m: Machine) -> Tensor:
        if constrained:
            algebra.projected(m, size, weight)
        q = skew(m, weight, index[0], size)
        turned = neumann(m, q, block, terms) if series else cayley(m, q, block)
        return algebra.linear_function(m, turned, blocks * block * block) if shared else turned

    def turned(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // layer.fin
        turn = rotation(m)
        rotated = ops.matmul(m, algebra.reordered(m, x), turn, rows * layer.fin)
        out = ops.cast(m, ops.copy(m, rotated), x.itemsize)
        del rotated, turn
        return out

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        wide = ops.cast(m, x, weight.itemsize)
        x = turned(m, wide)
        del wide
        result = base(m, layer, ops.cast(m, x, dtype))
        del x
        return ops.cast(m, result, dtype)

    return forward


def _divisor(features: int, wanted: int) -> int:
    """The divisor of the features nearest to what is asked for (`oft/layer.py`, `adjust_oft_parameters`)."""
    if wanted >= features:
        return features
    above = next(n for n in range(wanted, features + 1) if features % n == 0)
    below = next(n for n in range(wanted, 0, -1) if features % n == 0)
    return below if wanted - below <= above - wanted else above


def boft(site: Site) -> Forward:
    """`boft/layer.py`: one orthogonal matrix as wide as the input, made of blocks between permutations that are stored as matrices.

    PEFT compiles a CUDA extension for more than one butterfly factor and does with one where it cannot; that is taken here.
    """
    site.only(*BNB, "hqq", "torchao")
    layer, side = site.layer, site.layer.fin
    block, count = int(site.option("boft_block_size", 4)), int(site.option("boft_block_num", 0))
    block = block or side // count
    count = side // block
    rotations, scales = site.parameter("boft_R", count, block, block), site.parameter("boft_s", layer.fout, 1)
    permutation = site.buffer(side * side)
    size = side * side

    def blocks(m: Machine) -> Tensor:
        difference = algebra.negated_sum(m, rotations)
        half_skew = ops.scale(m, difference)
        del difference
        return cayley(m, half_skew, block)

    def turned(m: Machine, dtype: int) -> tuple[Tensor, Tensor]:
        identity, ones = m.new(size, dtype), m.new(layer.fout, dtype)
        wide = algebra.linear_function(m, blocks(m), size)
        permuted = ops.cast(m, permutation, dtype)
        diagonal = ops.cast(m, wide, dtype)
        del wide
        batch = ops.matmul(m, diagonal, permuted, size)
        batch = ops.matmul(m, permuted, batch, size)
        chosen = ops.narrow(m, batch, size)
        rotation = ops.matmul(m, chosen, identity, size)
        scale = ops.mul(m, scales, ones)
        hold.append((diagonal, batch, chosen))
        return rotation, scale

    hold: list[tuple[Tensor, ...]] = []

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        rotation, scale = turned(m, dtype)
        x = product(m, x, rotation, None, side, side)
        result = base(m, layer, x)
        if layer.bias is not None:
            result = ops.add(m, result, ops.scale(m, layer.bias))
        result = ops.mul(m, result, scale)
        if layer.bias is not None:
            result = ops.add(m, result, layer.bias)
        result = ops.cast(m, result, dtype)
        hold.clear()
        del rotation, scale, x
        return result

    return forward


def hra(site: Site) -> Forward:
    """`hra/layer.py`: r reflections one after the other, each a matrix as wide as the input; their product turns the whole weight.

    `apply_GS` makes the vectors orthogonal first, so that all reflections are one product.
    """
    site.only()
    layer, rank, side = site.layer, site.rank(8), site.layer.fin
    vectors, size = site.parameter("hra_u", side, rank), side * side
    orthogonal = bool(site.option("apply_GS", False))

    def reflected(m: Machine) -> Tensor:
        wide = vectors.itemsize
        units = algebra.divide(m, vectors, algebra.norm(m, vectors, rank))
        weight = m.new(size, wide)
        for _ in range(rank):
            unit = ops.narrow(m, units, side)
            doubled = ops.scale(m, weight)
            moved = ops.matmul(m, ops.matmul(m, doubled, unit, side), unit, size)
            del doubled
            weight = ops.subtract(m, weight, moved)
            del moved
        return weight

    def gram_schmidt(m: Machine) -> Tensor:
        wide = vectors.itemsize
        units: list[Tensor] = []
        for _ in range(rank):
            unit = ops.narrow(m, vectors, side)
            for earlier in units:
                unit = ops.subtract(m, unit, ops.mul(m, ops.matmul(m, earlier, unit, 1), earlier))
            units.append(algebra.divide(m, unit, algebra.norm(m, unit, 1)))
        whole = ops.concat(m, tuple(units))
        del unit
        eye = m.new(size, wide)
        out = ops.subtract(m, eye, ops.matmul(m, ops.scale(m, whole), whole, size))
        del eye
        return out

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        weight = m.new(size, FP32)
        delta = gram_schmidt(m) if orthogonal else reflected(m)
        weight = ops.matmul(m, weight, delta, size)
        own = ops.cast(m, layer.weight, weight.itemsize)
        weight = ops.matmul(m, own, weight, site.elements)
        bias = ops.cast(m, layer.bias, weight.itemsize) if layer.bias is not None else None
        x = ops.cast(m, x, weight.itemsize)
        result = product(m, x, weight, bias, layer.fin, layer.fout)
        result = ops.cast(m, result, dtype)
        del delta, own, weight, bias, x
        return result

    return forward


def psoft(site: Site) -> Forward:
    """`psoft/layer.py`: a small orthogonal matrix between the leading singular vectors of the weight, which are kept as buffers."""
    site.only()
    layer, rank, p = site.layer, site.rank(32), site.dropout("psoft_dropout")
    size, wide = rank * rank, site.builder.setup.adapter_itemsize
    turns = bool(site.option("psoft_orth", True))
    weight = site.parameter("psoft_R.weight", rank * (rank - 1) // 2) if turns else site.parameter("psoft_R.weight", rank, rank)
    index = [site.buffer(rank * (rank - 1) // 2, INT64) for _ in range(2)] if turns else []
    vectors = [site.parameter(f"psoft_R.vector_{n}", rank) for n in "ba" if site.option(f"psoft_mag_{n}", True)]
    a, b = site.buffer(rank * layer.fin, wide), site.buffer(layer.fout * rank, wide)

    def rotation(m: Machine) -> Tensor:
        matrix: Tensor = weight
        if turns:
            q = skew(m, weight, index[0], size)
            if site.option("use_cayley_neumann", False):
                matrix = neumann(m, q, rank, int(site.option("num_cayley_neumann_terms", 5)))
            else:
                matrix = cayley(m, q, rank)
        for vector in vectors:
            matrix = ops.mul(m, vector, matrix)
        return matrix

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        dtype = result.itemsize
        x = ops.cast(m, x, wide)
        dropped = ops.dropout(m, x, p)
        low = product(m, dropped, a, None, layer.fin, rank)
        turned = ops.matmul(m, low, rotation(m), low.numel)
        delta = product(m, ops.subtract(m, turned, low), b, None, rank, layer.fout)
        result = ops.add(m, result, ops.scale(m, delta))
        result = ops.cast(m, result, dtype)
        del x, dropped, low, turned, delta
        return result

    return forward
