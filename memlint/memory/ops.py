"""The operations that model code is made of, each with what it allocates, saves and allocates again in backward.

Saved tensors and gradient formulas are those of torch 2.13 (`tools/autograd/derivatives.yaml`,
`torch/csrc/autograd/FunctionsManual.cpp`); every function names the PyTorch operation that it stands for. Element-wise
results take the wider dtype of their operands. Views (`view`, `transpose`, `expand`) cost nothing and do not appear.
"""

from __future__ import annotations

from memlint.memory.autograd import alias
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, INT64, Grads, Parameter, Storage, Tensor


def cast(m: Machine, x: Tensor, itemsize: int) -> Tensor:
    """`x.to(dtype)`: nothing when the dtype is already right."""
    if x.itemsize == itemsize:
        return x
    casts = m.tape.casts
    if m.tape.traced is not None and (id(x), itemsize) in casts:
        return casts[id(x), itemsize][1]
    out = m.new(x.numel, itemsize)
    back, numel = x.itemsize, x.numel
    out = m.tape.record(out, (x,), lambda g: (m.new(numel, back),))
    if m.tape.traced is not None:
        casts[id(x), itemsize] = (x, out)
    return out


def autocast(m: Machine, x: Tensor) -> Tensor:
    """The cast that autocast puts in front of an operation of its lower-precision list. Where it casts several arguments, the last one
    comes first (torch 2.13 `autocast_mode.h`, `WrapFunction_`, in the order in which gcc evaluates arguments)."""
    if not m.autocast or x.itemsize != FP32:
        return x
    if not isinstance(x, Parameter) or x.node is None or x.kind == "recomputed" or m.tape.traced is not None:
        return cast(m, x, m.autocast)
    ident = x.storage.ident
    if ident not in m.casts:
        m.casts[ident] = (x.layer, cast(m, x, m.autocast))
    return m.casts[ident][1]


def copy(m: Machine, x: Tensor) -> Tensor:
    """`x.clone()` or a `.contiguous()` that has to copy; the gradient passes through."""
    out = m.new(x.numel, x.itemsize)
    return m.tape.record(out, (x,), lambda g: (g,))


def reduced(m: Machine, grad: Tensor, like_numel: int, like_itemsize: int) -> Tensor:
    """Sum a broadcast gradient to its operand's size (`sum_to_size`) and cast it to its dtype."""
    if grad.numel != like_numel:
        grad = m.new(like_numel, grad.itemsize)
    if grad.itemsize != like_itemsize:
        grad = m.new(like_numel, like_itemsize)
    return grad


def add(m: Machine, a: Tensor, b: Tensor) -> Tensor:
    """`a + b`."""
    out = m.new(max(a.numel, b.numel), max(a.itemsize, b.itemsize))
    na, ia, nb, ib = a.numel, a.itemsize, b.numel, b.itemsize
    need_a, need_b = a.node is not None, b.node is not None

    def rule(g: Tensor) -> Grads:
        return (
            alias(reduced(m, g, na, ia)) if need_a else None,
            alias(reduced(m, g, nb, ib)) if need_b else None,
        )

    return m.tape.record(out, (a, b), rule)


def add_in_place(m: Machine, a: Tensor, b: Tensor) -> Tensor:
    """`a += b`: no new tensor, and a keeps its dtype."""
    out = Tensor(a.storage, a.numel, a.itemsize, a.node, a.index)
    nb, ib = b.numel, b.itemsize
    need_a, need_b = a.node is not None, b.node is not None
    return m.tape.record(out, (a, b), lambda g: (alias(g) if need_a else None, alias(reduced(m, g, nb, ib)) if need_b else None))


def gathered(m: Machine, x: Tensor) -> Tensor:
    """All positions of a residual stream that is divided over the tensor-parallel ranks; backward scatters."""
    return resized(m, x, x.numel * m.split)


def scattered(m: Machine, x: Tensor) -> Tensor:
    """This rank's positions of a tensor-parallel layer's result; backward gathers."""
    return resized(m, x, x.numel // m.split)


def resized(m: Machine, x: Tensor, numel: int) -> Tensor:
    """Gather or scatter along the sequence: a new tensor where the size changes."""
    if x.numel == numel:
        return x
    out = m.new(numel, x.itemsize)
    back, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(back, itemsize),))


def subtract(m: Machine, a: Tensor, b: Tensor) -> Tensor:
    """`a - b`: the gradient of b is negated, and cast or summed up when the other is gone."""
    out = m.new(max(a.numel, b.numel), max(a.itemsize, b.itemsize))
    na, ia, nb, ib = a.numel, a.itemsize, b.numel, b.itemsize
    need_a, need_b = a.node is not None, b.node is not None

    def rule(grads: list[Tensor]) -> Grads:
        g = grads.pop()
        ga = alias(reduced(m, g, na, ia)) if need_a else None
        gb = m.new(g.numel, g.itemsize) if need_b else None
        del g
        return ga, reduced(m, gb, nb, ib) if gb is not None else None

    m.tape.record(out, (a, b), rule)
    if out.node is not None:
        out.node.consumes = True
    return out


def mul(m: Machine, a: Tensor, b: Tensor) -> Tensor:
    """`a * b`: keeps each operand for the other's gradient."""
    out = m.new(max(a.numel, b.numel), max(a.itemsize, b.itemsize))
    na, ia, nb, ib = a.numel, a.itemsize, b.numel, b.itemsize
    need_a, need_b = a.node is not None, b.node is not None

    def rule(g: Tensor) -> Grads:
        # Both at full size, before the engine sums one up (`validate_outputs`).
        gb = m.new(g.numel, g.itemsize) if need_b else None
        ga = m.new(g.numel, g.itemsize) if need_a else None
        m.tape.unpacked()
        if ga is not None:
            ga = reduced(m, ga, na, ia)
        if gb is not None:
            gb = reduced(m, gb, nb, ib)
        return ga, gb

    saved = (b.storage if need_a else None, a.storage if need_b else None)
    return m.tape.record(out, (a, b), rule, saved)


def scale(m: Machine, x: Tensor) -> Tensor:
    """`x * number`, `-x`, `number - x`, `x / number`: nothing saved."""
    out = m.new(x.numel, x.itemsize)
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),))


def shift(m: Machine, x: Tensor) -> Tensor:
    """`x + number`: the gradient passes through."""
    out = m.new(x.numel, x.itemsize)
    return m.tape.record(out, (x,), lambda g: (g,))


def unary(m: Machine, x: Tensor, keeps: str = "input") -> Tensor:
    """An activation (silu, gelu, relu, tanh, sigmoid): keeps its input or its output."""
    out = m.new(x.numel, x.itemsize)
    numel, itemsize = x.numel, x.itemsize
    saved = x.storage if keeps == "input" else out.storage
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),), (saved,))


def power(m: Machine, x: Tensor) -> Tensor:
    """`x.pow(n)`: keeps x; backward computes `grad * (n * x.pow(n - 1))`. Autocast runs it in float32."""
    if m.autocast:
        x = cast(m, x, FP32)
    out = m.new(x.numel, x.itemsize)
    numel, itemsize = x.numel, x.itemsize

    def rule(g: Tensor) -> Grads:
        # C++ keeps the parts of an expression to its end.
        parts = m.new(numel, itemsize), m.new(numel, itemsize)
        grad = m.new(numel, itemsize)
        del parts
        return (grad,)

    return m.tape.record(out, (x,), rule, (x.storage,))


def vector_norm(m: Machine, x: Tensor, numel: int) -> Tensor:
    """`torch.linalg.vector_norm(x, 2, dim)`: keeps x and its result, which is float32 under autocast."""
    out = m.new(numel, FP32 if m.autocast else x.itemsize)
    full, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(full, itemsize),), (x.storage, out.storage))


def mean_last(m: Machine, x: Tensor, width: int) -> Tensor:
    """`x.mean(-1, keepdim=True)`: backward divides the expanded gradient."""
    out = m.new(x.numel // width, x.itemsize)
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),))


def small(m: Machine, x: Tensor) -> Tensor:
    """A function of per-row statistics that keeps its result (`rsqrt`)."""
    return unary(m, x, keeps="output")


def rms_statistics(m: Machine, x: Tensor, width: int) -> Tensor:
    """`torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)`."""
    variance = mean_last(m, power(m, x), width)
    return small(m, shift(m, variance))


def layer_norm(m: Machine, x: Tensor, weight: Tensor | None, bias: Tensor | None, width: int, groups: int = 0) -> Tensor:
    """`F.layer_norm`: keeps input, mean and rstd. Autocast runs it in float32 and keeps its casts of weight and bias.

    `F.group_norm` is the same but for the number of its statistics, one for each of `groups`.
    """
    plain = (weight, bias)
    call = (x,)  # the caller's reference to the input, whatever it is cast to
    if m.autocast:
        bias = cast(m, bias, FP32) if bias is not None else None
        weight = cast(m, weight, FP32) if weight is not None else None
        x = cast(m, x, FP32)
    rows = groups or x.numel // width
    out = m.new(x.numel, x.itemsize)
    mean, rstd = Storage(m.ledger, rows * FP32), Storage(m.ledger, rows * FP32)
    numel, itemsize = x.numel, x.itemsize
    need = tuple(t is not None and t.node is not None for t in (x, weight, bias))
    wsize = weight.itemsize if weight is not None else itemsize

    def rule(g: Tensor) -> Grads:
        grad = m.new(numel, itemsize) if need[0] else None
        return grad, m.new(width, wsize) if need[1] else None, m.new(width, wsize) if need[2] else None

    casts = tuple(t.storage for t, p in zip((weight, bias), plain, strict=True) if t is not None and t is not p)
    del call
    return m.tape.record(out, (x, weight, bias), rule, (x.storage, mean, rstd, *casts))


def dropout(m: Machine, x: Tensor, p: float) -> Tensor:
    """`F.dropout` in training: keeps a mask of one byte per element (`native_dropout`); nothing at p = 0.

    Kernels before torch 1.12 keep the mask in the dtype of the input.
    """
    if p <= 0 or not m.training:
        return x
    out = m.new(x.numel, x.itemsize)
    mask = Storage(m.ledger, x.numel * (x.itemsize if m.wide_dropout_masks else BYTE))
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),), (mask,))


def drop_path(m: Machine, x: Tensor, rate: float, samples: int) -> Tensor:
    """Stochastic depth: `x.div(keep) * mask`, one number for each sample (`BeitDropPath` in transformers, from timm)."""
    if rate <= 0 or not m.training:
        return x
    return mul(m, scale(m, x), m.new(samples, x.itemsize))


def softmax(m: Machine, x: Tensor, itemsize: int) -> Tensor:
    """`softmax(x, dtype)`: keeps its result; float16 becomes float32 inside the kernel, bfloat16 by a cast in front of it
    (torch 2.13 `aten/src/ATen/native/SoftMax.cpp`, `softmax`)."""
    if not m.float16:
        x = cast(m, x, itemsize)
    out = m.new(x.numel, itemsize)
    numel, back = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(numel, back),), (out.storage,))


def matmul(m: Machine, a: Tensor, b: Tensor, out_numel: int) -> Tensor:
    """`bmm`: keeps each operand for the other's gradient; operands are already contiguous (else call `copy` first)."""
    b = autocast(m, b)
    a = autocast(m, a)
    out = m.new(out_numel, max(a.itemsize, b.itemsize))
    na, ia, nb, ib = a.numel, a.itemsize, b.numel, b.itemsize
    need_a, need_b = a.node is not None, b.node is not None
    operands = a.storage.ident, b.storage.ident

    def rule(g: Tensor) -> Grads:
        ga = m.new(na, ia) if need_a else None
        m.tape.ran(ga, g, operands[1])
        gb = m.new(nb, ib) if need_b else None
        m.tape.ran(gb, g, operands[0])
        return ga, gb

    saved = (b.storage if need_a else None, a.storage if need_b else None)
    return m.tape.record(out, (a, b), rule, saved, kernel=True)


def narrow(m: Machine, x: Tensor, numel: int) -> Tensor:
    """A slice: a view in forward, a zero-filled full-size gradient in backward (`slice_backward`)."""
    out = Tensor(x.storage, numel, x.itemsize)
    full, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(full, itemsize),))


def split(m: Machine, x: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """`split`/`chunk`/`unbind`: views in forward; backward concatenates the gradients."""
    outs = tuple(Tensor(x.storage, numel, x.itemsize) for numel in sizes)
    full, itemsize = x.numel, x.itemsize
    return m.tape.record_many(outs, (x,), lambda *g: (m.new(full, itemsize),))


def concat(m: Machine, parts: tuple[Tensor, ...]) -> Tensor:
    """`torch.cat`: a copy; backward hands out views of the gradient, cast for parts of another dtype."""
    out = m.new(sum(p.numel for p in parts), max(p.itemsize for p in parts))
    sizes = tuple((p.numel, p.itemsize) for p in parts)

    def rule(g: Tensor) -> Grads:
        return tuple(Tensor(g.storage, n, size) if size == g.itemsize else m.new(n, size) for n, size in sizes)

    return m.tape.record(out, parts, rule)


def gather(m: Machine, x: Tensor, index: Tensor, numel: int) -> Tensor:
    """`x[index]` (rows): keeps the index; backward adds the rows into a zero-filled tensor (`index_backward`)."""
    out = m.new(numel, x.itemsize)
    full, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(full, itemsize),), (index.storage,))


def average_pool(m: Machine, x: Tensor, count: int) -> Tensor:
    """`F.avg_pool2d`: the mean of `count` values; keeps its input."""
    out = m.new(x.numel // count, x.itemsize)
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),), (x.storage,))


def take(m: Machine, x: Tensor, index: Tensor, numel: int) -> Tensor:
    """`torch.gather(x, dim, index)`: keeps x and the index."""
    out = m.new(numel, x.itemsize)
    full, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(full, itemsize),), (x.storage, index.storage))


def pick(m: Machine, x: Tensor) -> Tensor:
    """`x[..., [n], :]`: a copy of a slice by an index list."""
    return gather(m, x, m.new(1, INT64), x.numel)


def expand(m: Machine, x: Tensor, numel: int) -> Tensor:
    """`x.expand(...)`, a view whose gradient has its full size and is summed."""
    few, itemsize = x.numel, x.itemsize
    return m.tape.record(Tensor(x.storage, numel, itemsize), (x,), lambda g: (m.new(few, itemsize),))


def spread(m: Machine, x: Tensor, numel: int) -> Tensor:
    """`x.expand(...)` made dense: backward sums."""
    out = m.new(numel, x.itemsize)
    few, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(few, itemsize),))


def sum_groups(m: Machine, x: Tensor, numel: int) -> Tensor:
    """`x.view(rows, group, width).sum(1)`: backward copies the expanded gradient out (the view needs it dense)."""
    out = m.new(numel, x.itemsize)
    full, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(full, itemsize),))


def pad(m: Machine, x: Tensor, numel: int) -> Tensor:
    """`F.pad`: a copy with more elements; backward cuts a piece out of the gradient (a copy as well)."""
    out = m.new(numel, x.itemsize)
    few, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(few, itemsize),))


def sum_last(m: Machine, x: Tensor, numel: int) -> Tensor:
    """`x.sum(-1)`: the gradient is expanded, no memory."""
    out = m.new(numel, x.itemsize)
    full, itemsize, storage = x.numel, x.itemsize, out.storage
    del storage
    return m.tape.record(out, (x,), lambda g: (Tensor(g.storage, full, itemsize),))


def where(m: Machine, condition: Tensor, x: Tensor, numel: int) -> Tensor:
    """`torch.where(condition, x, number)`, broadcast to `numel`: keeps the condition."""
    out = m.new(numel, x.itemsize)
    few, itemsize = x.numel, x.itemsize

    def rule(g: Tensor) -> Grads:
        return (reduced(m, m.new(numel, itemsize), few, itemsize),)

    return m.tape.record(out, (x,), rule, (condition.storage,))


def masked_fill(m: Machine, x: Tensor, mask: Tensor) -> Tensor:
    """`x.masked_fill(mask, number)`: keeps the boolean mask."""
    out = m.new(x.numel, x.itemsize)
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),), (mask.storage,))


def clamp(m: Machine, x: Tensor) -> Tensor:
    """`x.clamp(...)`: keeps x; backward masks the gradient."""
    out = m.new(x.numel, x.itemsize)
    numel, itemsize = x.numel, x.itemsize

    def rule(g: Tensor) -> Grads:
        mask = m.new(numel, BYTE)
        grad = m.new(numel, itemsize)
        del mask
        return (grad,)

    return m.tape.record(out, (x,), rule, (x.storage,))


def maximum(m: Machine, x: Tensor) -> Tensor:
    """`torch.max(x, number in a tensor)`: keeps x; backward halves the gradient where both are equal, and masks it."""
    out = m.new(x.numel, x.itemsize)
    numel, itemsize = x.numel, x.itemsize

    def rule(g: Tensor) -> Grads:
        equal, half = m.new(numel, BYTE), m.new(numel, itemsize)
        grad, less = m.new(numel, itemsize), m.new(numel, BYTE)
        del equal, half, less
        return (grad,)

    return m.tape.record(out, (x,), rule, (x.storage,))


def merged(m: Machine, table: Tensor) -> Tensor:
    """An embedding table with its trained rows put in: a copy of it (`index_copy`; peft 0.21.2 `tuners/trainable_tokens/layer.py`)."""
    rows = m.rows.get(table.storage.ident)
    if rows is None:
        return table
    source = cast(m, rows, table.itemsize)
    few, itemsize = source.numel, source.itemsize
    return m.tape.record(m.new(table.numel, itemsize), (source,), lambda g: (m.new(few, itemsize),))


def embedding(
    m: Machine, weight: Parameter, width: int, rows: int, ids: Tensor, scaled: bool = False, inputs: bool = True
) -> Tensor:
    """`F.embedding`: keeps the ids; backward makes a dense gradient of the whole table.

    `scaled`: the module multiplies its result. `inputs`: it is the table of the input tokens (not of positions).
    """
    used = merged(m, weight)
    out = m.new(rows * width, weight.itemsize)
    table, itemsize = weight.numel, weight.itemsize
    out = m.tape.record(out, (used,), lambda g: (m.new(table, itemsize),), (ids.storage,), kernel=True)
    if scaled:
        out = scale(m, out)
    if inputs and out.node is None and m.input_grads:
        out = m.tape.leaf(out)
    return m.tuned[weight.storage.ident](m, out, ids, scaled) if weight.storage.ident in m.tuned else out


def token_ids(m: Machine, rows: int) -> Tensor:
    """A tensor of int64 ids or positions."""
    return m.new(rows, INT64)
