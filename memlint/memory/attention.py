"""Attention cores: from projected queries, keys and values to the mixed values, for each implementation.

`Shape` carries the head counts; q, k, v arrive as (batch, heads, sequence, head_dim) views of contiguous (batch, sequence, ...)
storages. Every core returns a contiguous (batch, sequence, heads * head_dim) tensor, as transformers' attention interface does
(transformers 5.24, `integrations/sdpa_attention.py`, `integrations/flash_attention.py`, `eager_attention_forward`).
"""

from __future__ import annotations

from memlint.memory import cache, ops
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, HALF, INT64, Grads, Parameter, Storage, Tensor
from memlint.typed import NamedTuple

NEWER_FLASH = ("flash_attention_3", "flash_attention_4")


class Shape(NamedTuple):
    """Sizes of one attention call. `queries` and `keys` are sequence lengths; `value_dim` differs from `head_dim` under MLA."""

    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dropout: float = 0.0
    causal: bool = True
    softcap: bool = False
    sinks: Parameter | None = None
    """A learned logit per head that joins the scores (GPT-OSS)."""
    sinks_scale: bool = False
    """It does so by scaling the result with what it leaves of the softmax (Granite SWA)."""
    broadcasts_kv: bool = False
    """One key head is left to broadcasting, which only the math path of SDPA takes (Falcon's multi-query attention)."""
    float32_scores: bool = False
    """Queries and keys are raised to float32 before they are multiplied (GPT-J, GPT-Neo)."""
    head_major: bool = False
    """Queries come out of a concatenation, head by head: the flash kernel's result has their layout and has to be copied."""
    separate: bool = False
    """Each sample attends in a call of its own, so that no product has to copy its operands."""
    kv_head_major: bool = False
    """Keys and values are laid out head by head as well: no product has to copy them."""
    floors: bool = False
    """No masked score falls below the dtype's least number (`torch.max`, XGLM)."""
    returns_plain: bool = False
    """The layer returns the softmax's result, not what dropout has made of it (XGLM)."""
    float32_softmax: bool = True
    """Eager attention asks for a float32 softmax (Llama and most since); else it stays in the stream's dtype (GPT-2, BERT)."""
    narrows: bool = False
    """Such a softmax, which autocast makes float32, is cast to the dtype of the values before dropout (GPT-2)."""
    names_scores: bool = False
    """A name holds the scores without the mask until their softmax is there (Falcon)."""
    repeats_kv: bool | None = None
    """Whether the framework expands K and V to all heads itself; None: as transformers decides."""

    @property
    def scores(self) -> int:
        """Elements of one score matrix."""
        return self.batch * self.heads * self.queries * self.keys

    @property
    def out(self) -> int:
        """Elements of the result."""
        return self.batch * self.queries * self.heads * self.value_dim


def attend(m: Machine, q: Tensor, k: Tensor, v: Tensor, shape: Shape, bias: Tensor | None = None) -> Tensor:
    """Run the machine's attention implementation; `bias` is a per-head position bias (T5, ALiBi) or None."""
    if m.caches and shape.causal:
        cache.keep(m, k, v)
    if m.exchange and shape.causal and shape.queries == shape.keys == m.sequence:
        from memlint.memory.exchange import exchanged  # few runs divide their sequences

        return exchanged(m, q, k, v, shape, lambda m, q, k, v, shape: _attend(m, q, k, v, shape, bias))
    return _attend(m, q, k, v, shape, bias)


def _attend(m: Machine, q: Tensor, k: Tensor, v: Tensor, shape: Shape, bias: Tensor | None) -> Tensor:
    flashes = m.attention.startswith("flash")
    if m.attention == "eager" or (shape.softcap and not flashes) or shape.sinks is not None:
        return eager(m, q, k, v, shape, bias)
    if flashes or m.attention == "xformers":
        if m.repeats_kv:
            k, v = repeat_kv(m, k, shape), repeat_kv(m, v, shape)
            shape = _expanded(shape)
        return flash(m, *_half(m, q, k, v), shape)
    q, k, v = (ops.autocast(m, t) for t in (q, k, v))
    older = m.no_flash and q.itemsize == HALF
    if (older and not m.float16) or shape.broadcasts_kv:
        return math(m, q, k, v, shape, bias or m.mask)
    mask = bias or m.mask
    if mask is not None:
        mask = ops.autocast(m, mask)
    if m.repeats_kv or shape.repeats_kv or (shape.repeats_kv is None and (mask is not None or shape.head_dim > 256)):
        k, v = repeat_kv(m, k, shape), repeat_kv(m, v, shape)
        shape = _expanded(shape)
    if (older or q.itemsize == FP32) and shape.heads != shape.kv_heads:
        return math(m, q, k, v, shape, mask)  # only flash takes grouped heads (torch 2.13 `cuda/sdp_utils.cpp`)
    if mask is not None or older or q.itemsize == FP32 or shape.value_dim != shape.head_dim:
        return efficient(m, q, k, v, shape, mask)
    return flash(m, q, k, v, shape)


def _half(m: Machine, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Flash attention takes half inputs only: a float32 stream is cast (`_flash_attention_forward`, target_dtype)."""
    return tuple(ops.cast(m, t, 2) for t in (q, k, v))  # type: ignore[return-value]


def _philox(m: Machine) -> tuple[Storage, Storage]:
    """Seed and offset of the dropout generator, kept even without dropout."""
    return Storage(m.ledger, 8), Storage(m.ledger, 8)


def _expanded(shape: Shape) -> Shape:
    return shape._replace(kv_heads=shape.heads)


def repeat_kv(m: Machine, x: Tensor, shape: Shape) -> Tensor:
    """`expand` and `reshape` of key or value heads to all heads: a copy unless they are equal already, or one that all share."""
    if shape.heads == shape.kv_heads:
        return x
    if shape.kv_heads == 1:
        return ops.expand(m, x, x.numel * shape.heads)
    return _repeated(m, x, shape)


def _repeated(m: Machine, x: Tensor, shape: Shape) -> Tensor:
    """`repeat_interleave` of key or value heads."""
    numel, itemsize = x.numel, x.itemsize
    out = m.new(numel * shape.heads // shape.kv_heads, itemsize)
    return m.tape.record(out, (x,), lambda g: (m.new(numel, itemsize),))


def flash(m: Machine, q: Tensor, k: Tensor, v: Tensor, shape: Shape) -> Tensor:
    """FlashAttention-2: keeps q, k, v, the output and a float32 log-sum-exp per row and head.

    Backward (flash-attn 2.7 `mha_bwd`; torch 2.13 `flash_api.cpp`): dq, dk, dv, a float32 dq accumulator and softmax_d, both over a
    sequence rounded up to 128; with grouped heads dk and dv are first made for all heads and then summed. FlashAttention-3 and 4
    (`hopper/flash_api.cpp` `mha_bwd`; `flash_attn/cute/interface.py`) keep a second statistic per row, and accumulate dk and dv of grouped
    heads in float32.
    """
    out = m.new(shape.out, q.itemsize)
    lse = Storage(m.ledger, shape.batch * shape.heads * shape.queries * FP32)
    m.mixed(out.storage, lse)
    rounded = shape.batch * shape.heads * ((shape.queries + 127) // 128 * 128)
    padded_dim = (shape.head_dim + 31) // 32 * 32
    sizes = (q.numel, k.numel, v.numel)
    itemsize = q.itemsize
    groups = shape.heads // shape.kv_heads

    def rule(g: Tensor) -> Grads:
        dq = m.new(sizes[0], itemsize)
        dk = m.new(sizes[1], itemsize)
        dv = m.new(sizes[2], itemsize)
        softmax_d = m.new(rounded, FP32)
        accumulator = m.new(rounded * padded_dim, FP32)
        if m.attention in NEWER_FLASH:
            kept = [m.new(rounded, FP32), *(m.new(size, FP32) for size in sizes[1:] if groups > 1)]
            del kept
        elif groups > 1:
            wide = m.new(sizes[1] * groups, itemsize), m.new(sizes[2] * groups, itemsize)
            del wide
        del softmax_d, accumulator
        return dq, dk, dv

    saved = (q.storage, k.storage, v.storage, out.storage, lse, *_philox(m))
    out = m.tape.record(out, (q, k, v), rule, saved, kernel=True)
    return ops.copy(m, out) if shape.head_major else out


TILES = ((64, (64, 64)), (128, (128, 128)), (1 << 16, (128, 64)))
"""Tiles of the backward kernel by the widest head that it takes (`kernels/cutlassB.h`, compute capability 8.0 and 9.0)."""


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def efficient(m: Machine, q: Tensor, k: Tensor, v: Tensor, shape: Shape, bias: Tensor | None) -> Tensor:
    """Memory-efficient SDPA: as flash, with the attention bias kept.

    Backward (torch 2.13 `attention_backward.cu`, `mem_eff_attention/kernel_backward.h`): a float32 delta per row, and a workspace that
    holds dq in float32 (`workspace_elements_gq`), tile by tile.
    """
    out = m.new(shape.out, q.itemsize)
    lse = Storage(m.ledger, shape.batch * shape.heads * ((shape.queries + 31) // 32 * 32) * FP32)
    sizes = (q.numel, k.numel, v.numel)
    itemsize, statistics = q.itemsize, shape.batch * shape.heads * shape.queries
    bias_storage = bias.storage if bias is not None else None
    if bias is not None and (bias.itemsize == BYTE or shape.keys % 16):
        # A boolean mask becomes an additive bias at every call, and its rows are padded to 16 elements
        # (aten/src/ATen/native/transformers/attention.cpp, `convert_boolean_attn_mask`, `pad_bias`).
        padded = (shape.keys + 15) // 16 * 16
        rows = max(bias.numel, shape.batch * shape.queries * shape.keys) if bias.itemsize == BYTE else bias.numel
        bias_storage = Storage(m.ledger, rows // shape.keys * padded * itemsize)
    if bias is not None and bias.numel < shape.scores and bias.node is not None:
        bias = ops.expand(m, bias, shape.scores)
    widest = max(shape.head_dim, shape.value_dim)
    rows, columns = next(tile for most, tile in TILES if widest <= most)
    workspace = shape.batch * shape.heads * _up(shape.queries, rows) * _up(shape.head_dim, columns)
    need_bias = bias is not None and bias.node is not None
    bias_numel = bias.numel if bias is not None else 0

    def rule(g: Tensor) -> Grads:
        dq, dk, dv = (m.new(n, itemsize) for n in sizes)
        grad_bias = m.new(bias_numel, itemsize) if need_bias else None
        temporaries = m.new(statistics, FP32), m.new(workspace, FP32)
        del temporaries
        return dq, dk, dv, grad_bias

    saved = (q.storage, k.storage, v.storage, out.storage, lse, bias_storage, *_philox(m))
    return m.tape.record(out, (q, k, v, bias), rule, saved, kernel=True)


def math(m: Machine, q: Tensor, k: Tensor, v: Tensor, shape: Shape, bias: Tensor | None) -> Tensor:
    """The math path of SDPA (`_scaled_dot_product_attention_math`)."""
    itemsize, autocast = q.itemsize, m.autocast
    inner = FP32 if m.float32_math else itemsize
    m.autocast = 0  # the composite kernel runs below autocast
    if shape.heads != shape.kv_heads:
        k, v = _repeated(m, k, shape), _repeated(m, v, shape)
    q, k, v = (ops.cast(m, t, inner) for t in (q, k, v))
    q, k = ops.scale(m, q), ops.scale(m, k)
    scores = _product(m, q, k, shape.scores)
    if bias is not None:
        scores = ops.add(m, scores, ops.cast(m, bias, inner))
    elif shape.causal:
        scores = ops.shift(m, scores)
    weights = ops.softmax(m, scores, inner)
    del scores
    weights = ops.dropout(m, weights, shape.dropout)
    out = _product(m, weights, v, shape.out)
    m.autocast = autocast
    return ops.copy(m, ops.cast(m, out, itemsize))


def eager(m: Machine, q: Tensor, k: Tensor, v: Tensor, shape: Shape, bias: Tensor | None) -> Tensor:
    """transformers' `eager_attention_forward`: scores, scaling, mask, float32 softmax, dropout, mixing."""
    k, v = repeat_kv(m, k, shape), repeat_kv(m, v, shape)
    weights = scores(m, q, k, shape)
    weights = ops.scale(m, weights)
    named = [weights] if shape.names_scores else []
    if shape.softcap:
        weights = ops.scale(m, weights)
        weights = ops.unary(m, weights, keeps="output")
        weights = ops.scale(m, weights)
    if bias is not None:
        weights = ops.add(m, weights, bias)
    if m.mask is not None and m.mask.itemsize == BYTE:
        weights = ops.masked_fill(m, weights, m.mask)
    elif m.mask is not None and m.mask is not bias:
        weights = ops.add(m, weights, m.mask)
    elif bias is None and shape.causal:
        weights = ops.shift(m, weights)
    if shape.floors:
        weights = ops.maximum(m, weights)
    if shape.sinks is not None and shape.sinks_scale:
        return _scaled_by_sinks(m, weights, shape.sinks, q.itemsize, v, shape)
    only = [*named, weights]  # so that the callee can let go of them
    del named, weights
    if shape.sinks is not None:
        return _with_sinks(m, only, shape.sinks, v, shape)
    return mix(m, only, q.itemsize, v, shape)


def _with_sinks(m: Machine, scored: list[Tensor], sinks: Parameter, v: Tensor, shape: Shape) -> Tensor:
    """GPT-OSS: one more column of scores; the row's maximum is subtracted, softmax in the stream's dtype, the column dropped."""
    rows = shape.batch * shape.heads * shape.queries
    weights = scored.pop()
    itemsize = weights.itemsize
    column = m.tape.record(Tensor(sinks.storage, rows, itemsize), (sinks,), lambda g: (m.new(shape.heads, itemsize),))
    combined = ops.concat(m, (weights, column))
    del weights
    index = m.new(rows, INT64)
    numel = combined.numel
    top = m.tape.record(m.new(rows, itemsize), (combined,), lambda g: (m.new(numel, itemsize),), (index.storage,))
    combined = ops.subtract(m, combined, top)
    del top, index
    probabilities = ops.softmax(m, combined, itemsize)
    del combined
    dropped = ops.dropout(m, ops.narrow(m, probabilities, shape.scores), shape.dropout)
    m.weights.append(dropped)
    out = _product(m, dropped, ops.autocast(m, v), shape.out)
    return ops.copy(m, out)


def _scaled_by_sinks(m: Machine, weights: Tensor, sinks: Parameter, itemsize: int, v: Tensor, shape: Shape) -> Tensor:
    """Granite SWA: the mixed values times sigmoid(logsumexp(scores) - sink) in float32."""
    rows, numel = shape.batch * shape.heads * shape.queries, weights.numel
    wide = ops.cast(m, weights, FP32) if m.autocast else weights
    sums = m.new(rows, wide.itemsize)
    back = wide.itemsize

    def rule(g: Tensor) -> Grads:
        difference, shares = m.new(numel, back), m.new(numel, back)  # `grad * (self - result).exp()`
        grad = m.new(numel, back)
        del difference, shares
        return (grad,)

    sums = m.tape.record(sums, (wide,), rule, (wide.storage, sums.storage))
    del wide
    share = ops.unary(m, ops.cast(m, ops.subtract(m, sums, sinks), FP32), keeps="output")
    del sums
    weights = ops.cast(m, ops.softmax(m, weights, FP32), itemsize)
    weights = ops.dropout(m, weights, shape.dropout)
    m.weights.append(weights)
    out = _product(m, weights, ops.autocast(m, v), shape.out)
    return ops.copy(m, ops.mul(m, out, ops.cast(m, share, out.itemsize)))


def scores(m: Machine, q: Tensor, k: Tensor, shape: Shape) -> Tensor:
    """`torch.matmul(query, key.transpose(2, 3))`: operands that are transposed views are copied, and the copies kept."""
    given = k
    if shape.float32_scores:
        q, k = ops.cast(m, q, FP32), ops.cast(m, k, FP32)
    q, k = ops.autocast(m, q), ops.autocast(m, k)
    if shape.batch > 1 and not shape.separate and not shape.head_major:
        q = ops.copy(m, q)
    return _product(m, q, _merged(m, k, shape, k is given), shape.scores)


def _merged(m: Machine, x: Tensor, shape: Shape, uncast: bool) -> Tensor:
    """Keys or values with samples and heads in one dimension: a copy, unless they have been copied to all heads.

    One head that all share has only been expanded, but a cast writes it out.
    """
    if shape.batch == 1 or shape.separate or shape.kv_head_major:
        return x
    return ops.copy(m, x) if shape.heads == shape.kv_heads or (shape.kv_heads == 1 and uncast) else x


def mix(m: Machine, scored: list[Tensor], itemsize: int, v: Tensor, shape: Shape) -> Tensor:
    """Softmax in float32, back to the stream's dtype, dropout, times V, and the copy to (batch, sequence, heads).

    Takes the scores out of `scored`.
    """
    weights = scored.pop()
    if shape.float32_softmax:
        weights = ops.cast(m, ops.softmax(m, weights, FP32), itemsize)
    elif m.autocast:
        weights = ops.softmax(m, ops.cast(m, weights, FP32), FP32)
        weights = ops.cast(m, weights, v.itemsize) if shape.narrows else weights
    else:
        weights = ops.softmax(m, weights, itemsize)
    scored.clear()
    plain = weights
    weights = ops.dropout(m, plain, shape.dropout)
    m.weights.append(plain if shape.returns_plain else weights)
    del plain
    cast = ops.autocast(m, v)
    out = _product(m, weights, _merged(m, cast, shape, cast is v), shape.out)
    return ops.copy(m, out)


def _product(m: Machine, a: Tensor, b: Tensor, numel: int) -> Tensor:
    return ops.matmul(m, a, b, numel)


def in_dtype_of(m: Machine, x: Tensor) -> None:
    """The additive mask of a model whose embeddings autocast normalises: it is made in the dtype of the result."""
    if m.mask is not None and m.mask.itemsize not in (BYTE, x.itemsize):
        m.mask = make_mask(m, x.itemsize)


def make_mask(m: Machine, itemsize: int) -> Tensor:
    """The 4-D bias (batch, 1, sequence, sequence) that a padded batch makes; boolean for SDPA in current transformers."""
    return m.new(m.batch * m.sequence * m.sequence, itemsize or BYTE)
