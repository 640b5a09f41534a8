"""Matrix functions that parameter-efficient layers and mixtures of experts use, beside the operations of `memlint.memory.ops`.

As there: saved tensors and gradient formulas of torch 2.13 (`tools/autograd/derivatives.yaml`, `FunctionsManual.cpp`).
"""

from __future__ import annotations

from memlint.memory.autograd import alias
from memlint.memory.machine import Machine
from memlint.memory.ops import cast, reduced
from memlint.memory.tensor import FP32, INT64, Grads, Tensor

COMPLEX = 8
"""complex64."""


def add_into(m: Machine, a: Tensor, b: Tensor) -> Tensor:
    """`a += b`: written into a's memory; a wider b is converted inside the kernel."""
    na, ia, nb, ib = a.numel, a.itemsize, b.numel, b.itemsize
    need_a, need_b = a.node is not None, b.node is not None

    def rule(g: Tensor) -> Grads:
        return alias(reduced(m, g, na, ia)) if need_a else None, alias(reduced(m, g, nb, ib)) if need_b else None

    return m.tape.record(Tensor(a.storage, na, ia), (a, b), rule)


def grouped_mm(m: Machine, x: Tensor, weight: Tensor, offsets: Tensor, out_numel: int) -> Tensor:
    """`F.grouped_mm(x, weight, offs)`: as `mm` with one weight per group of rows. Autocast does not know it."""
    x = cast(m, x, weight.itemsize)
    out = m.new(out_numel, weight.itemsize)
    need_x, need_w = x.node is not None, weight.node is not None
    nx, nw, itemsize = x.numel, weight.numel, weight.itemsize

    def rule(g: Tensor) -> Grads:
        return m.new(nx, itemsize) if need_x else None, m.new(nw, itemsize) if need_w else None

    saved = (weight.storage if need_x else None, x.storage if need_w else None, offsets.storage)
    return m.tape.record(out, (x, weight), rule, saved)


def norm(m: Machine, x: Tensor, numel: int) -> Tensor:
    """`x.norm(dim)`: keeps its input and its result; backward scales the input."""
    out = m.new(numel, x.itemsize)
    full, itemsize = x.numel, x.itemsize

    def rule(g: Tensor) -> Grads:
        ratio = m.new(numel, itemsize)
        grad = m.new(full, itemsize)
        del ratio
        return (grad,)

    return m.tape.record(out, (x,), rule, (x.storage, out.storage))


def divide(m: Machine, a: Tensor, b: Tensor) -> Tensor:
    """`a / b`: keeps the divisor, and the dividend for the divisor's gradient."""
    out = m.new(max(a.numel, b.numel), max(a.itemsize, b.itemsize))
    na, ia, nb, ib = a.numel, a.itemsize, b.numel, b.itemsize
    need_a, need_b = a.node is not None, b.node is not None

    def rule(g: Tensor) -> Grads:
        gb = None
        if need_b:
            parts = [m.new(g.numel, g.itemsize) for _ in ("-grad", "a / b", "a / b / b")]
            gb = m.new(g.numel, g.itemsize)
            del parts
        ga = reduced(m, m.new(g.numel, g.itemsize), na, ia) if need_a else None
        return ga, reduced(m, gb, nb, ib) if gb is not None else None

    return m.tape.record(out, (a, b), rule, (b.storage, a.storage if need_b else None))


def solve(m: Machine, a: Tensor, b: Tensor, side: int) -> Tensor:
    """`torch.linalg.solve(a, b, left=False)` of matrices with that side: keeps a, its factors, the pivots and the result."""
    size, itemsize = a.numel, max(a.itemsize, b.itemsize)
    out, factors = m.new(size, itemsize), m.new(size, itemsize)
    pivots = m.new(size // side, FP32)

    def rule(g: Tensor) -> Grads:
        gb = m.new(size, itemsize)
        product = m.new(size, itemsize)
        ga = m.new(size, itemsize)
        del product
        return ga, gb

    return m.tape.record(out, (a, b), rule, (a.storage, out.storage, factors.storage, pivots.storage))


def linear_function(m: Machine, x: Tensor, numel: int, itemsize: int = 0) -> Tensor:
    """A copy that keeps nothing and whose backward is another one (`repeat`, `stack` of negated halves, a real part, a permutation)."""
    out = m.new(numel, itemsize or x.itemsize)
    few, back = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(few, back),))


def reordered(m: Machine, x: Tensor) -> Tensor:
    """A view in another order, whose gradient is copied back into the order of x."""
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(Tensor(x.storage, numel, itemsize), (x,), lambda g: (m.new(numel, itemsize),))


def orthogonal(m: Machine, x: Tensor, rows: int, columns: int) -> Tensor:
    """The Q of `torch.linalg.qr(x)` (reduced): keeps Q and R."""
    q, r = m.new(rows * columns, x.itemsize), m.new(columns * columns, x.itemsize)
    numel, itemsize = x.numel, x.itemsize

    def rule(g: Tensor) -> Grads:
        product = m.new(numel, itemsize)
        grad = m.new(numel, itemsize)
        del product
        return (grad,)

    return m.tape.record(q, (x,), rule, (q.storage, r.storage))


def fourier(m: Machine, x: Tensor) -> Tensor:
    """The real part of `torch.fft.ifft2(x)` of a real x: a view of the complex result.

    The input is first made complex. Backward puts the gradient into a complex zero, transforms it, and takes the real part, a view.
    cuFFT works in a buffer that PyTorch allocates for it (torch 2.13 `aten/src/ATen/native/cuda/SpectralOps.cpp`, `_exec_fft`), as
    large as the data in two dimensions.
    """
    numel, itemsize = x.numel, x.itemsize
    complex_input = m.new(numel, COMPLEX)
    transformed = m.new(numel, COMPLEX)
    m.transient(numel, COMPLEX)
    del complex_input

    def transform(g: Tensor) -> Grads:
        grad = m.new(numel, COMPLEX)
        m.transient(numel, COMPLEX)
        return (Tensor(grad.storage, numel, itemsize),)

    transformed = m.tape.record(transformed, (x,), transform)
    real = Tensor(transformed.storage, numel, itemsize)
    return m.tape.record(real, (transformed,), lambda g: (m.new(numel, COMPLEX),))


def filled(m: Machine, values: Tensor, index: Tensor, numel: int) -> Tensor:
    """`dense[index] = values` on fresh zeros: keeps the index; backward reads the gradient there."""
    return written(m, m.new(numel, values.itemsize), values, index)


def written(m: Machine, dense: Tensor, values: Tensor, index: Tensor) -> Tensor:
    """`dense[index] = values` on zeros that need no gradient."""
    few, itemsize = values.numel, values.itemsize
    out = Tensor(dense.storage, dense.numel, dense.itemsize)
    return m.tape.record(out, (values,), lambda g: (m.new(few, itemsize),), (index.storage,))


def negated_sum(m: Machine, x: Tensor) -> Tensor:
    """`x - x.T`: the second gradient is negated and added to the first."""
    out = m.new(x.numel, x.itemsize)
    numel, itemsize = x.numel, x.itemsize

    def rule(g: Tensor) -> Grads:
        other = m.new(numel, itemsize)
        del other
        return (g,)

    return m.tape.record(out, (x,), rule)


def doubled(m: Machine, x: Tensor) -> Tensor:
    """An operand that is added with a factor (`add_(x, alpha=2)`): its gradient is scaled, the operand is used as it is."""
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(Tensor(x.storage, numel, itemsize), (x,), lambda g: (m.new(numel, itemsize),))


def projected(m: Machine, size: int, weight: Tensor) -> None:
    """COFT's projection of its blocks, in place and without gradient (`oft/layer.py`, `_project_batch`): nothing outlives it."""
    itemsize = weight.itemsize
    blocks = m.new(size, itemsize)
    difference = m.new(size, itemsize)
    ratio = m.new(size, itemsize)
    scaled = m.new(size, itemsize)
    del ratio
    moved = m.new(size, itemsize)
    del scaled
    chosen = m.new(size, itemsize)
    del moved, blocks, difference, chosen


def outer(m: Machine, a: Tensor, b: Tensor, numel: int) -> Tensor:
    """`torch.kron(a, b)`, a product of two broadcast views."""
    out = m.new(numel, max(a.itemsize, b.itemsize))
    na, nb, itemsize = a.numel, b.numel, out.itemsize

    def rule(g: Tensor) -> Grads:
        first, second = m.new(numel, itemsize), m.new(numel, itemsize)
        grad = m.new(na, itemsize)
        del first
        other = m.new(nb, itemsize)
        del second
        return grad, other

    return m.tape.record(out, (a, b), rule, (a.storage, b.storage))


def mul_into_view(m: Machine, x: Tensor, factor: Tensor) -> Tensor:
    """`view *= factor` where the view is of all of x: keeps the factor; backward copies the gradient twice (`CopySlices`)."""
    numel, itemsize = x.numel, x.itemsize

    def rule(g: Tensor) -> Grads:
        whole = m.new(numel, itemsize)
        copied = m.new(numel, itemsize)
        scaled = m.new(numel, itemsize)
        del copied, scaled
        return (whole,)

    return m.tape.record(Tensor(x.storage, numel, itemsize), (x,), rule, (factor.storage,))


def scatter_add(m: Machine, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """`x.scatter_add(0, index, values)` on a flat x: keeps the index; backward gathers."""
    out = m.new(x.numel, x.itemsize)
    few, itemsize, need = values.numel, values.itemsize, x.node is not None
    return m.tape.record(out, (x, values), lambda g: (alias(g) if need else None, m.new(few, itemsize)), (index.storage,))


def top(m: Machine, x: Tensor, numel: int) -> tuple[Tensor, Tensor]:
    """`x.topk(k)`, values and indices: keeps the indices; backward scatters into zeros."""
    out, index = m.new(numel, x.itemsize), m.new(numel, INT64)
    few, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(few, itemsize),), (index.storage,)), index


def mean_rows(m: Machine, x: Tensor, width: int) -> Tensor:
    """`x.mean(dim=0)` over all rows: the gradient is expanded and divided."""
    out = m.new(width, x.itemsize)
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),))
