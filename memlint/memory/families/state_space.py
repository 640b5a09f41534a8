"""State-space mixers: Mamba's selective scan, Mamba-2's dual form, LFM2's short convolution.

Mixers as in transformers 5.24 `models/{mamba,falcon_mamba,mamba2,jamba,lfm2}/modeling_*.py`. Mamba's are taken to run on the kernels of
mamba-ssm and causal-conv1d, which transformers uses where they are installed: what they keep is read in mamba-ssm 2.2
`ops/selective_scan_interface.py` (`MambaInnerFn`, `SelectiveScanFn`) and `ops/triton/ssd_combined.py`
(`MambaSplitConv1dScanCombinedFn`). Without them the states of every step are kept, many times as much, and nobody trains that way.
"""

from __future__ import annotations

from memlint.memory import convolutions, ops
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.linear_attention import without_padding
from memlint.memory.families.llama import Part
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Grads, Parameter, Storage, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import Any, NamedTuple

ROWS, COLUMNS = 32, 64
"""Tiles of the dual form's kernels that write a partial sum each: rows of a chunk, elements of a state."""
SCAN_CHUNK = 2048
"""Steps per chunk of the selective scan's kernel (`csrc/selective_scan/selective_scan.cpp`): it keeps two states per chunk."""


class Scan(NamedTuple):
    """The sizes of a Mamba mixer, whatever a model type calls them."""

    inner: int
    state: int
    rank: int
    kernel: int
    bias: bool
    conv_bias: bool
    out_bias: bool
    heads: int
    groups: int
    chunk: int
    norm: bool
    """The dual form normalises what it made, gated."""


def scan_of(a: Architecture) -> Scan:
    """Read the sizes of a configuration."""
    config, hidden = a.config, a.hidden_size or 0

    def first(*keys: str) -> Any:
        return next((config[key] for key in keys if config.get(key) is not None), None)

    heads = int(first("mamba_num_heads", "mamba_n_heads", "num_heads") or 1)
    each = first("mamba_head_dim", "mamba_d_head", "head_dim") if a.model_type != "mamba" else None
    expanded = int(float(first("mamba_expand", "expand") or 2) * hidden)
    if a.model_type == "nemotron_h":
        inner = heads * int(each or 64)
    elif a.model_type in ("mamba", "falcon_mamba"):
        inner = int(config.get("intermediate_size") or expanded)
    else:
        inner = int(config.get("mamba_d_ssm") or expanded)
    rank = first("mamba_dt_rank", "time_step_rank")
    bias = bool(first("mamba_proj_bias", "use_bias"))
    return Scan(
        inner=inner,
        state=int(first("mamba_d_state", "ssm_state_size", "state_size") or 16),
        rank=rank if isinstance(rank, int) else -(-hidden // 16),
        kernel=int(first("mamba_d_conv", "conv_kernel") or 4),
        bias=bias,
        conv_bias=bool(first("mamba_conv_bias", "use_conv_bias")),
        out_bias=bool(config.get("projectors_bias")) if a.model_type == "falcon_h1" else bias,
        heads=heads,
        groups=int(first("mamba_n_groups", "n_groups") or 1),
        chunk=int(first("mamba_chunk_size", "chunk_size") or 256),
        norm=bool(config.get("mamba_rms_norm", a.model_type != "falcon_h1")),
    )


def selective_scan(b: Builder, a: Architecture) -> Part:
    """Mamba's mixer as one kernel (`mamba_inner_fn`): it makes the convolution and the steps anew in backward."""
    b.parent = "mixer"
    s, hidden = scan_of(a), a.hidden_size or 0
    conv, small = _convolution(b, s.inner, s)
    in_proj = b.linear("in_proj", hidden, 2 * s.inner, s.bias)
    x_proj, dt_proj = b.linear("x_proj", s.inner, s.rank + 2 * s.state), b.linear("dt_proj", s.rank, s.inner, True)
    rates, skip = b.parameter("A_log", "state", (s.inner, s.state)), b.vector("D", s.inner, "state")
    out_proj = b.linear("out_proj", s.inner, hidden, s.bias)
    own = [conv, *small, rates, skip]

    def mixer(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        if m.mask is not None:
            x = without_padding(m, x)
        xz = ops.copy(m, apply(m, in_proj, x))  # time becomes the last dimension
        size, few = xz.itemsize, rows * s.state
        weights = [ops.autocast(m, layer.weight) for layer in (x_proj, dt_proj, out_proj)]
        projected = m.new(rows * (s.rank + 2 * s.state), size)
        first, second = m.new(few, size), m.new(few, size)
        decay = m.new(rates.numel, FP32)
        chunks = m.new(m.batch * s.inner * -(-m.sequence // SCAN_CHUNK) * 2 * s.state, FP32)
        result = m.new(rows * s.inner, size)
        m.transient(3 * rows * s.inner, size)  # the convolution, the steps, the gated result
        out = m.new(rows * hidden, size)
        kept = (xz, projected, first, second, decay, chunks, result, *weights)
        wide, sizes = rows * s.inner, _sizes(*own, *weights)

        def rule(g: Tensor) -> Grads:
            again = [m.new(wide, size) for _ in range(5)]  # convolution, steps, their gradients, the gated result
            del again
            return (m.new(2 * wide, size), *_gradients(m, sizes))

        return m.tape.record(out, (xz, *own, *weights), rule, tuple(t.storage for t in kept))

    return mixer


def normalised_scan(b: Builder, a: Architecture) -> Part:
    """Jamba's mixer: the steps and both projections of the state are normalised, so that convolution and scan are kernels apart."""
    b.parent = "mixer"
    s, hidden = scan_of(a), a.hidden_size or 0
    conv, small = _convolution(b, s.inner, s)
    in_proj = b.linear("in_proj", hidden, 2 * s.inner, s.bias)
    x_proj, dt_proj = b.linear("x_proj", s.inner, s.rank + 2 * s.state), b.linear("dt_proj", s.rank, s.inner, True)
    rates, skip = b.parameter("A_log", "state", (s.inner, s.state)), b.vector("D", s.inner, "state")
    out_proj = b.linear("out_proj", s.inner, hidden, s.bias)
    norms = [(b.norm(name, width), width) for name, width in (("dt", s.rank), ("b", s.state), ("c", s.state))]

    def mixer(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        if m.mask is not None:
            x = without_padding(m, x)
        x, gate = ops.split(m, apply(m, in_proj, x), (rows * s.inner, rows * s.inner))
        x = _convolved(m, x, conv, small)
        if m.mask is not None:
            x = without_padding(m, x)
        widths = (rows * s.rank, rows * s.state, rows * s.state)
        steps, first, second = (
            parts.rms_norm(m, part, weight, width)
            for part, (weight, width) in zip(ops.split(m, apply(m, x_proj, x), widths), norms, strict=True)
        )
        steps = ops.matmul(m, dt_proj.weight, steps, rows * s.inner)
        return apply(m, out_proj, _scanned(m, x, steps, first, second, gate, rates, skip, s))

    return mixer


def dual_form(b: Builder, a: Architecture) -> Part:
    """Mamba-2's mixer as one kernel (`mamba_split_conv1d_scan_combined`), the gated norm and the output projection in it."""
    b.parent = "mixer"
    s, hidden = scan_of(a), a.hidden_size or 0
    mixed = s.inner + 2 * s.groups * s.state
    conv, small = _convolution(b, mixed, s)
    in_proj = b.linear("in_proj", hidden, s.inner + mixed + s.heads, s.bias)
    own = [conv, *small, *(b.vector(name, s.heads, "state") for name in ("dt_bias", "A_log", "D"))]
    if s.norm:
        own.append(b.norm("norm", s.inner))
    out_proj = b.linear("out_proj", s.inner, hidden, s.out_bias)
    scales = b.buffer(in_proj.fout, b.setup.weight_itemsize) if a.model_type == "falcon_h1" else None

    def mixer(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        if m.mask is not None:
            x = without_padding(m, x)
        if scales is not None:
            x = ops.scale(m, x)
        zxbcdt = apply(m, in_proj, x)
        if scales is not None:
            zxbcdt = ops.mul(m, zxbcdt, scales)
        size, wide = zxbcdt.itemsize, rows * s.inner
        chunks = m.batch * -(-m.sequence // s.chunk)
        states, square, steps = chunks * s.inner * s.state, chunks * s.groups * s.chunk**2, chunks * s.heads * s.chunk
        convolved = m.new(rows * mixed, size)
        held = [m.new(steps, FP32), m.new(steps, FP32)]
        wide_states = m.new(states, FP32)
        held += [m.new(states, size), m.new(m.batch * s.inner * s.state, FP32)]
        del wide_states
        products = m.new(square, FP32)
        result = m.new(wide, size)
        mixed_states = result if s.norm else m.new(wide, size)  # ungated
        del products
        statistics = m.new(rows * s.groups, FP32) if s.norm else None
        gated = m.new(wide, size) if s.norm else result
        weight = _cast_anew(m, out_proj.weight)
        half = m.autocast or size
        gated = ops.cast(m, gated, half)
        out = m.new(rows * hidden, half)
        kept = tuple(t.storage for t in (zxbcdt, mixed_states, statistics, weight) if t is not None)
        full, sizes, few, weights = zxbcdt.numel, _sizes(*own, out_proj.weight), rows * s.groups * s.state, weight.numel
        del convolved, held, result, mixed_states, gated

        def rule(g: Tensor) -> Grads:
            again, convolved = m.new(wide, size), m.new(rows * mixed, size)
            grad = m.new(full, size)
            held = [m.new(rows * mixed, size), m.new(wide, half)]  # of the convolution, of the output projection
            held += [m.new(wide, half)] if s.norm else []
            held += [m.new(rows * s.heads, size), *(m.new(steps, FP32) for _ in range(2)), m.new(square, FP32)]
            before = m.new(states, FP32)
            before = m.new(states, FP32)
            if not s.norm:
                held += [m.new(wide, half)]
                again = m.new(wide, size)
            dstates = m.new(states, FP32)
            held += [m.new(states, size), m.new(chunks * s.heads * -(-s.inner // s.heads * s.state // COLUMNS), FP32)]
            held += [m.new(states, size)]
            del before, dstates
            held += [m.new(steps, FP32)]
            for _ in range(2):  # of B and C, and what the decay gets from them
                partial = m.new(few, FP32)
                held += [m.new(steps, FP32), m.new(few, FP32)]
                del partial
            partial = m.new(square, FP32)
            held += [m.new(square, FP32)]
            del partial
            flipped = m.new(steps, FP32)
            summed = m.new(steps, FP32)
            del flipped
            held += [m.new(steps, FP32)]
            del summed
            partial = m.new(steps * -(-s.chunk // ROWS), FP32)
            held += [m.new(steps, FP32)]
            del partial
            m.transient(steps, FP32)
            held.clear()
            again = ops.cast(m, again, half)
            m.transient(weights, half)  # of the output projection, trained or not
            del again, convolved
            return (grad, *_gradients(m, sizes))

        return m.tape.record(out, (zxbcdt, *own, out_proj.weight), rule, kept)

    return mixer


def _cast_anew(m: Machine, weight: Tensor) -> Tensor:
    """`weight.to(dtype)` inside a kernel's function: no cast of autocast's cache, and nothing in the graph."""
    return m.new(weight.numel, m.autocast) if m.autocast and weight.itemsize == FP32 else weight


def short_convolution(b: Builder, a: Architecture) -> Part:
    """LFM2: a gated convolution over a few steps, plain PyTorch."""
    b.parent = "conv"
    hidden, kernel = a.hidden_size or 0, int(a.config.get("conv_L_cache") or 3)
    biased = bool(a.config.get("conv_bias"))
    conv = b.parameter("conv", "conv", (hidden, kernel))
    bias = b.vector("conv.bias", hidden) if biased else None
    in_proj, out_proj = b.linear("in_proj", hidden, 3 * hidden, biased), b.linear("out_proj", hidden, hidden, biased)

    def mixer(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        if m.mask is not None:
            x = without_padding(m, x)
        first, second, x = ops.split(m, apply(m, in_proj, x), (rows * hidden,) * 3)
        x = ops.mul(m, first, x)
        dtype = x.itemsize
        x = ops.cast(m, x, conv.itemsize)
        padded = m.batch * (m.sequence + kernel - 1) * hidden
        wide = (
            convolutions.depthwise_conv(m, x, conv, padded)
            if bias is None
            else convolutions.convolution(m, x, conv, bias, padded)
        )
        x = ops.cast(m, ops.narrow(m, wide, rows * hidden), dtype)
        del wide
        return apply(m, out_proj, ops.copy(m, ops.mul(m, second, x)))

    return mixer


def _convolution(b: Builder, width: int, s: Scan) -> tuple[Parameter, list[Parameter]]:
    """The weights of the convolution over time."""
    weight = b.parameter("conv1d", "conv", (width, s.kernel))
    return weight, [b.vector("conv1d.bias", width)] if s.conv_bias else []


Sizes = list[tuple[int, int] | None]
"""(elements, bytes each) of the gradients of weights; None for one that is not trained."""


def _sizes(*weights: Tensor) -> Sizes:
    return [(weight.numel, weight.itemsize) if weight.node is not None else None for weight in weights]


def _gradients(m: Machine, sizes: Sizes) -> list[Tensor | None]:
    return [m.new(*size) if size else None for size in sizes]


def _convolved(m: Machine, x: Tensor, weight: Parameter, bias: list[Parameter]) -> Tensor:
    """`causal_conv1d_fn` with its activation: keeps the input."""
    out = m.new(x.numel, x.itemsize)
    numel, itemsize, sizes = x.numel, x.itemsize, _sizes(weight, *bias)
    return m.tape.record(out, (x, weight, *bias), lambda g: (m.new(numel, itemsize), *_gradients(m, sizes)), (x.storage,))


def _scanned(
    m: Machine, x: Tensor, steps: Tensor, first: Tensor, second: Tensor, gate: Tensor, rates: Parameter, skip: Parameter, s: Scan
) -> Tensor:
    """`selective_scan_fn` with a gate: keeps its inputs, the ungated result and two states per chunk."""
    size, numel = x.itemsize, x.numel
    chunks = Storage(m.ledger, m.batch * s.inner * -(-m.sequence // SCAN_CHUNK) * 2 * s.state * FP32)
    decay, result = m.new(rates.numel, FP32), m.new(numel, size)
    out = m.new(numel, size)
    inputs = (x, steps, first, second, gate)
    sizes: Sizes = [*((t.numel, size) for t in inputs), *_sizes(rates, skip)]

    def rule(g: Tensor) -> Grads:
        return tuple(_gradients(m, sizes))

    saved = (*(t.storage for t in inputs), chunks, decay.storage, result.storage)
    return m.tape.record(out, (*inputs, rates, skip), rule, saved)
