"""Tuners that make a whole weight, or a change of it, in every forward pass."""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import algebra, ops
from memlint.memory.families import parts
from memlint.memory.linear import base, product, unpacked
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, INT64, Grads, Tensor
from memlint.memory.tuners.site import BNB, Forward, Site


def hira(site: Site) -> Forward:
    """`hira/layer.py` and `hira/bnb.py`: the base weight times a low-rank matrix, element by element."""
    site.only(*BNB)
    layer, rank, p = site.layer, site.rank(32), site.dropout("hira_dropout")
    a, b = site.parameter("hira_A", rank, layer.fin), site.parameter("hira_B", layer.fout, rank)
    packed = layer.quantised is not None

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        dtype = result.itemsize
        if packed:
            result = ops.copy(m, result)
        weight = unpacked(m, layer)
        factor = ops.matmul(m, a, b, site.elements)
        if not (packed and m.autocast):
            x = ops.cast(m, x, a.itemsize)
        dropped = ops.dropout(m, x, p)
        delta = product(m, dropped, ops.mul(m, weight, factor), None, layer.fin, layer.fout)
        if packed and not m.autocast:
            delta = ops.cast(m, delta, dtype)
        result = ops.cast(m, ops.add(m, result, delta), dtype)
        del delta, dropped, factor, weight
        return result

    return forward


def loha(site: Site) -> Forward:
    """`loha/layer.py`: the element-wise product of two low-rank matrices (`HadaWeight`, which makes both again in backward)."""
    site.only()
    layer, rank, size = site.layer, site.rank(8), site.elements
    shapes = ((layer.fout, rank), (rank, layer.fin))
    factors = [site.parameter(f"hada_w{i}_{n}", *shape) for i in (1, 2) for n, shape in zip("ab", shapes, strict=True)]
    rank_dropout = float(site.option("rank_dropout", 0.0))

    def weight(m: Machine) -> Tensor:
        cast = [ops.autocast(m, factor) for factor in factors]
        itemsize = cast[0].itemsize
        first, second = m.new(size, itemsize), m.new(size, itemsize)
        both = m.new(size, itemsize)
        del first, second
        out = m.new(size, itemsize)
        del both, cast
        wide = factors[0].itemsize

        def rule(g: Tensor) -> Grads:
            scaled = m.new(size, itemsize)
            other = m.new(size, wide)
            term = m.new(size, wide)
            del other
            grads = [m.new(layer.fout * rank, wide), m.new(rank * layer.fin, wide)]
            other = m.new(size, wide)
            term = m.new(size, wide)
            del other
            grads += [m.new(layer.fout * rank, wide), m.new(rank * layer.fin, wide)]
            del term, scaled
            return tuple(grads)

        return m.tape.record(out, tuple(factors), rule)

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base(m, layer, x)
        delta = weight(m)
        if rank_dropout:
            delta = algebra.mul_into_view(m, delta, m.new(layer.fout, delta.itemsize))
        return _added(m, site, result, delta, x, dtype)

    return forward


def _added(m: Machine, site: Site, result: Tensor, delta: Tensor, x: Tensor, dtype: int) -> Tensor:
    """`result + F.linear(x, delta)`, cast back: how LyCORIS layers end (`lycoris_utils.py`)."""
    layer = site.layer
    x = ops.cast(m, x, delta.itemsize)
    result = ops.add(m, result, product(m, x, delta, None, layer.fin, layer.fout))
    del delta, x
    return ops.cast(m, result, dtype)


def factorised(number: int, factor: int) -> tuple[int, int]:
    """Two factors of a number, the smaller first: the one asked for if it divides, else the pair nearest to each other
    (`lokr/layer.py`, `factorization`)."""
    if factor > 0 and number % factor == 0:
        return factor, number // factor
    limit = number if factor == -1 else factor
    small = max(d for d in range(1, int(number**0.5) + 1) if number % d == 0 and d <= limit)
    return small, number // small


def lokr(site: Site) -> Forward:
    """`lokr/layer.py`: the Kronecker product of two matrices, each of which may itself be a low-rank product."""
    site.only()
    layer, rank, size = site.layer, site.rank(8), site.elements
    factor, both = int(site.option("decompose_factor", -1)), bool(site.option("decompose_both", False))
    (out_small, out_large), (in_small, in_large) = factorised(layer.fout, factor), factorised(layer.fin, factor)

    def matrix(name: str, rows: int, columns: int, whole: bool) -> Callable[[Machine], Tensor]:
        if whole:
            weight = site.parameter(name, rows, columns)
            return lambda m: weight
        a, b = site.parameter(f"{name}_a", rows, rank), site.parameter(f"{name}_b", rank, columns)
        return lambda m: ops.matmul(m, a, b, rows * columns)

    first = matrix("lokr_w1", out_small, in_small, not (both and rank < max(out_small, in_small) / 2))
    second = matrix("lokr_w2", out_large, in_large, rank >= max(out_large, in_large) / 2)
    rank_dropout = float(site.option("rank_dropout", 0.0))

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base(m, layer, x)
        delta = ops.scale(m, algebra.outer(m, first(m), second(m), size))
        if rank_dropout:
            delta = algebra.mul_into_view(m, delta, m.new(layer.fout, FP32))
        return _added(m, site, result, delta, x, dtype)

    return forward


def peanut(site: Site) -> Forward:
    """`peanut/layer.py`: a small network that reads the base weight, column by column, and writes its change."""
    site.only()
    layer, rank, depth = site.layer, site.rank(32), int(site.option("depth", 0))
    act = str(site.option("act_fn", "relu"))
    a = site.parameter("peanut_A", rank, layer.fout)
    encoders = [site.parameter("peanut_encoders", rank, rank) for _ in range(depth)]
    decoders = [site.parameter("peanut_decoders", rank, rank) for _ in range(depth)]
    b = site.parameter("peanut_B", layer.fout, rank)

    def change(m: Machine) -> Tensor:
        columns = ops.cast(m, layer.weight, a.itemsize)
        delta = parts.activation(m, product(m, columns, a, None, layer.fout, rank), act)
        residuals = []
        for encoder in encoders:
            residuals.append(delta)
            delta = parts.activation(m, product(m, delta, encoder, None, rank, rank), act)
        for position, decoder in enumerate(decoders):
            delta = parts.activation(m, product(m, delta, decoder, None, rank, rank), act)
            delta = ops.add(m, delta, residuals[depth - 1 - position])
        delta = product(m, delta, b, None, rank, layer.fout)
        return ops.scale(m, delta)

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        dtype = result.itemsize
        weight = change(m)
        x = ops.cast(m, x, weight.itemsize)
        delta = product(m, x, weight, None, layer.fin, layer.fout)
        result = ops.add(m, result, ops.cast(m, delta, dtype))
        del delta, x, weight
        return result

    return forward


def glora(site: Site) -> Forward:
    """`glora/layer.py`: W + W * A + B in the base weight's dtype, and a bias likewise; each path low-rank, a vector, a number or absent
    (then zeros that are kept)."""
    site.only()
    layer, rank, own = site.layer, site.rank(8), site.layer.weight.itemsize

    def path(name: str, kind: str, rows: int, columns: int) -> Callable[[Machine], Tensor]:
        if kind == "lora":
            down, up = site.parameter(f"{name}.Xd", rows, rank), site.parameter(f"{name}.Xu", rank, columns)
            return lambda m: ops.cast(m, ops.matmul(m, down, up, rows * columns), own)
        if kind in ("vector", "constant"):
            weight = site.parameter(f"{name}.X", rows if kind == "vector" else 1)
            return lambda m: ops.cast(m, weight, own)
        zeros = site.buffer(rows * columns * site.copies, own)
        return lambda m: zeros

    biased = layer.bias is not None
    shape = str(site.option("config_A_B", "lora"))
    a, b = path("glora_A", shape, layer.fout, layer.fin), path("glora_B", shape, layer.fout, layer.fin)
    c = path("glora_C", str(site.option("config_C", "lora")) if biased else "none", layer.fin, 1)
    kind = str(site.option("config_D_E", "constant"))
    kind = kind if biased and kind in ("vector", "constant") else "none"
    d, e = path("glora_D", kind, layer.fout, 1), path("glora_E", kind, layer.fout, 1)

    def forward(m: Machine, x: Tensor) -> Tensor:
        plain = base(m, layer, x)
        result, values = plain, [part(m) for part in (a, b, c, d, e)]
        weight = ops.add(m, ops.add(m, layer.weight, ops.mul(m, layer.weight, values[0])), values[1])
        bias = None
        if layer.bias is not None:
            turned = ops.matmul(m, layer.weight, values[2], layer.fout)
            bias = ops.add(m, ops.add(m, ops.add(m, layer.bias, ops.mul(m, layer.bias, values[3])), values[4]), turned)
        adapted = product(m, x, weight, bias, layer.fin, layer.fout)
        result = ops.add(m, result, adapted)
        result = ops.subtract(m, result, ops.scale(m, plain))
        result = ops.cast(m, result, plain.itemsize)
        del adapted, plain, values, weight, bias
        return result

    return forward


def supertuning(site: Site) -> Forward:
    """`supertuning/layer.py`: trained numbers for the largest weights of each layer, added into a copy of the weight; perhaps a pair."""
    site.only()
    layer, rank, p = site.layer, int(site.option("r", 0) or 0), site.dropout("lora_dropout")
    count = int(site.elements * (1 - float(site.option("sparsity", 0.99))))
    values, places = site.parameter("supertuning_values", count, itemsize=FP32), site.buffer(count, 4)
    pair = (
        (site.parameter("supertuning_lora_A", rank, layer.fin), site.parameter("supertuning_lora_B", layer.fout, rank))
        if rank
        else None
    )

    def forward(m: Machine, x: Tensor) -> Tensor:
        index, own = m.new(places.numel, INT64), ops.cast(m, values, layer.weight.itemsize)
        weight = algebra.scatter_add(m, layer.weight, index, own)
        result = product(m, x, weight, layer.bias, layer.fin, layer.fout)
        if pair is not None:
            dropped = ops.cast(m, ops.dropout(m, x, p), pair[0].itemsize)
            low = product(m, product(m, dropped, pair[0], None, layer.fin, rank), pair[1], None, rank, layer.fout)
            result = ops.add(m, result, ops.cast(m, ops.scale(m, low), result.itemsize))
            del dropped, low
        del weight, index, own
        return result

    return forward


def shira(site: Site) -> Forward:
    """`shira/layer.py`: r * (in + out) trained numbers at fixed places, added to a copy of the weight as a sparse matrix.

    The addition of a sparse matrix to a dense one of another dtype works in the wider dtype, on a copy of the dense one and on a result
    that is copied back (torch 2.13 `aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu`, `add_out_dense_sparse_cuda`).
    """
    site.only(*BNB, "hqq", "torchao")
    layer, rank = site.layer, site.rank(32)
    count = rank * (layer.fin + layer.fout) * site.copies
    values, places = site.parameter("shira_weight", count), site.buffer(2 * count, 4)

    def added(m: Machine, weight: Tensor) -> Tensor:
        scaled = ops.scale(m, values)
        index = m.new(places.numel, INT64)
        if weight.itemsize != scaled.itemsize:
            wide = m.new(weight.numel, FP32)
            copy = m.new(weight.numel, FP32)
            del wide, copy
        size, few, itemsize = weight.numel, scaled.numel, scaled.itemsize

        def rule(g: Tensor) -> Grads:
            wide = g if g.itemsize == itemsize else m.new(size, itemsize)
            grad = m.new(few, itemsize)
            del wide
            return (grad,)

        return m.tape.record(Tensor(weight.storage, size, weight.itemsize), (scaled,), rule, (index.storage, scaled.storage))

    def forward(m: Machine, x: Tensor) -> Tensor:
        weight = m.new(site.elements, unpacked(m, layer).itemsize)
        weight = added(m, weight)
        result = product(m, x, weight, layer.bias, layer.fin, layer.fout)
        del weight
        return result

    return forward
