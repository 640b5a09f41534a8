"""Tuners that write a change of the weight in another basis: Fourier, wavelets, circulant blocks."""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import algebra, ops
from memlint.memory.linear import base, product
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, INT64, Grads, Tensor
from memlint.memory.tuners.site import Forward, Site


def fourierft(site: Site) -> Forward:
    """`fourierft/layer.py`: a few trained coefficients in a dense spectrum, whose inverse transform is the change; float32 throughout."""
    site.only()
    count = int(site.option("n_frequency", 1000))
    spectrum = site.parameter("fourierft_spectrum", count)

    def change(m: Machine) -> Tensor:
        places = m.new(2 * count, INT64)
        dense = algebra.filled(m, spectrum, places, site.elements)
        delta = ops.scale(m, algebra.fourier(m, dense))
        del dense, places
        return delta

    return _changed(site, change)


def _changed(site: Site, change: Callable[[Machine], Tensor]) -> Forward:
    """`result + F.linear(x, delta)`, cast back."""
    layer = site.layer

    def forward(m: Machine, x: Tensor) -> Tensor:
        dtype = x.itemsize
        result = base(m, layer, x)
        delta = change(m)
        x = ops.cast(m, x, delta.itemsize)
        result = ops.add(m, result, product(m, x, delta, None, layer.fin, layer.fout))
        result = ops.cast(m, result, dtype)
        del delta, x
        return result

    return forward


def waveft(site: Site) -> Forward:
    """`waveft/layer.py` and `waveft/waverec2d.py`: trained wavelet coefficients; the inverse transform is a transposed convolution of the
    four quarters, whose rim is cut off."""
    site.only()
    layer, count = site.layer, int(site.option("n_frequency", 2592))
    family, inverse = str(site.option("wavelet_family", "db1")), bool(site.option("use_idwt", True))
    taps = 2 * int(family[2:] or 1) if family.startswith("db") and family[2:].isdigit() else 2
    spectrum = site.parameter("waveft_spectrum", count)
    rim = taps - 2
    rows, columns = (-(-(n + rim) // 2) * 2 for n in (layer.fout, layer.fin))
    padded = rows * columns * site.copies
    whole = (rows + rim) * (columns + rim) * site.copies

    def change(m: Machine) -> Tensor:
        places = m.new(2 * count, INT64)
        if not inverse:
            dense = algebra.filled(m, spectrum, places, site.elements)
            return ops.scale(m, dense)
        dense = m.new(padded, spectrum.itemsize)
        moved, valid = m.new(2 * count, INT64), m.new(count, BYTE)
        chosen = m.new(2 * count, INT64)
        values = ops.gather(m, spectrum, valid, count)
        dense = algebra.written(m, dense, values, chosen)
        delta = ops.scale(m, restored(m, dense))
        del moved, places, values, dense
        return delta

    def restored(m: Machine, dense: Tensor) -> Tensor:
        """`waverec2d`: the filters (4 x taps x taps) are trained through, the stacked quarters are kept for that."""
        filters = m.new(4 * taps * taps, FP32)
        half, quarter = dense.numel // 2, dense.numel // 4
        wide = ops.concat(m, tuple(ops.narrow(m, ops.narrow(m, dense, half), quarter) for _ in range(4)))
        quarters = ops.autocast(m, wide)
        itemsize, few = quarters.itemsize, quarters.numel
        out = m.new(whole, itemsize)
        out = m.tape.record(out, (quarters,), lambda g: (m.new(few, itemsize),), (quarters.storage, filters.storage))
        del wide
        return ops.narrow(m, out, site.elements) if rim else out

    return _changed(site, change)


def c3a(site: Site) -> Forward:
    """`c3a/layer.py` and `c3a/utils.py` (`BlockCircularConvolution`): blocks of circulant matrices, applied by Fourier transforms of input
    and kernels; float32 throughout, added in place."""
    site.only()
    layer, block = site.layer, int(site.option("block_size", 256))
    kernel = site.parameter("c3a_kernel", layer.fout // block, layer.fin // block, block, itemsize=FP32)

    def convolved(m: Machine, x: Tensor) -> Tensor:
        given, weights = x.numel, kernel.numel
        made = given // layer.fin * layer.fout
        first, second = m.new(given, algebra.COMPLEX), m.new(weights, algebra.COMPLEX)
        mixed = m.new(made, algebra.COMPLEX)
        del first, second
        out = m.new(made, algebra.COMPLEX)
        del mixed
        need = x.node is not None

        def rule(g: Tensor) -> Grads:
            gradient = m.new(made, algebra.COMPLEX)
            turned = m.new(weights, algebra.COMPLEX)
            mixed = m.new(given, algebra.COMPLEX)
            del turned
            to_input = m.new(given, algebra.COMPLEX)
            del mixed
            other = m.new(given, algebra.COMPLEX)
            mixed = m.new(weights, algebra.COMPLEX)
            del other
            to_kernel = m.new(weights, algebra.COMPLEX)
            del mixed, gradient
            return Tensor(to_input.storage, given, FP32) if need else None, Tensor(to_kernel.storage, weights, FP32)

        return m.tape.record(Tensor(out.storage, made, FP32), (x, kernel), rule, (x.storage,))

    def forward(m: Machine, x: Tensor) -> Tensor:
        result = base(m, layer, x)
        x = convolved(m, ops.cast(m, x, FP32))
        x = ops.scale(m, x)
        return algebra.add_into(m, result, ops.cast(m, x, result.itemsize))

    return forward
