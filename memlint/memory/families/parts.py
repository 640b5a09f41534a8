"""Parts that several families share: normalisations, rotary embedding, activations, MLPs."""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.linear import Linear, apply
from memlint.memory.lora_kernels import fused_mlp, fuses
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, Grads, Parameter, Storage, Tensor


def rms_norm(m: Machine, x: Tensor, weight: Parameter | None, width: int) -> Tensor:
    """`LlamaRMSNorm` (transformers 5.24, `models/llama/modeling_llama.py`), or its fused kernel."""
    if "rms_norm" in m.kernels and weight is not None:
        return fused_norm(m, x, weight, width)
    dtype = x.itemsize
    x = ops.cast(m, x, FP32)
    x = ops.mul(m, x, ops.rms_statistics(m, x, width))
    narrow = ops.cast(m, x, dtype)
    return ops.mul(m, weight, narrow) if weight is not None else narrow


def rms_norm_promoted(m: Machine, x: Tensor, weight: Parameter, width: int) -> Tensor:
    """The variant that multiplies by the weight in float32 and casts last (OLMo 2)."""
    dtype = x.itemsize
    x = ops.cast(m, x, FP32)
    x = ops.mul(m, x, ops.rms_statistics(m, x, width))
    return ops.cast(m, ops.mul(m, weight, x), dtype)


def gemma_norm(m: Machine, x: Tensor, weight: Parameter, width: int) -> Tensor:
    """`GemmaRMSNorm`: float32 throughout, times (1 + weight), cast last."""
    if "rms_norm" in m.kernels:
        return fused_norm(m, x, weight, width)
    dtype = x.itemsize
    wide = ops.cast(m, x, FP32)
    output = ops.mul(m, wide, ops.rms_statistics(m, wide, width))
    del wide
    output = ops.mul(m, output, ops.shift(m, ops.cast(m, weight, FP32)))
    return ops.cast(m, output, dtype)


def fused_norm(m: Machine, x: Tensor, weight: Tensor, width: int) -> Tensor:
    """A Triton RMS norm (Liger, Unsloth): keeps its input and a float32 per row; backward writes into the gradient."""
    out = m.new(x.numel, x.itemsize)
    rstd = Storage(m.ledger, x.numel // width * FP32)
    need_w = weight.node is not None
    numel, itemsize, wsize = x.numel, x.itemsize, weight.itemsize

    def rule(g: Tensor) -> Grads:
        grad = m.new(numel, itemsize) if need_w else g
        return grad, m.new(width, wsize) if need_w else None

    return m.tape.record(out, (x, weight), rule, (x.storage, rstd), kernel=True)


def layer_norm(m: Machine, x: Tensor, weight: Parameter | None, bias: Parameter | None, width: int) -> Tensor:
    """`nn.LayerNorm`."""
    return ops.layer_norm(m, x, weight, bias, width)


def cohere_norm(m: Machine, x: Tensor, weight: Parameter, width: int) -> Tensor:
    """`CohereLayerNorm`: a layer norm spelt out in float32."""
    dtype = x.itemsize
    x = ops.cast(m, x, 4)
    mean = ops.mean_last(m, x, width)
    variance = ops.mean_last(m, ops.power(m, ops.add(m, x, mean)), width)
    x = ops.mul(m, ops.add(m, x, mean), ops.small(m, ops.shift(m, variance)))
    x = ops.mul(m, ops.cast(m, weight, 4), x)
    return ops.cast(m, x, dtype)


def layer_norm_plus(m: Machine, x: Tensor, weight: Parameter, bias: Parameter | None, width: int) -> Tensor:
    """`NemotronLayerNorm1P`: a layer norm times (1 + weight) that autocast runs in half, by casts of its own."""
    args = [ops.autocast(m, t) if t is not None else None for t in (x, ops.shift(m, weight), bias)]
    autocast, m.autocast = m.autocast, 0
    assert args[0] is not None
    out = ops.layer_norm(m, args[0], args[1], args[2], width)
    m.autocast = autocast
    return out


def rotary_tables(m: Machine, head_dim: int, itemsize: int, own: bool = False) -> tuple[Tensor, Tensor]:
    """cos and sin of all positions, in the stream's dtype (`LlamaRotaryEmbedding.forward`); `own`: each sample has its own positions."""
    size = (m.tokens if own else m.sequence) * head_dim
    frequencies = m.new(size, FP32)
    cos, sin = m.new(size, FP32), m.new(size, FP32)
    del frequencies
    if itemsize == FP32:
        return cos, sin
    return m.new(size, itemsize), m.new(size, itemsize)


def repeated_tables(m: Machine, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Halves of cos and sin with each number twice (`repeat_interleave`), which some layers make for themselves."""
    cos, sin = tables
    return m.new(cos.numel, cos.itemsize), m.new(sin.numel, sin.itemsize)


def rotate(m: Machine, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x * cos + rotate_half(x) * sin`."""
    left = ops.mul(m, x, cos)
    right = ops.mul(m, rotate_half(m, x), sin)
    return ops.add(m, left, right)


def rotate_half(m: Machine, x: Tensor) -> Tensor:
    """`cat((-x2, x1))`."""
    first, second = ops.narrow(m, x, x.numel // 2), ops.narrow(m, x, x.numel - x.numel // 2)
    return ops.concat(m, (ops.scale(m, second), first))


def rope(
    m: Machine,
    q: Tensor,
    k: Tensor,
    tables: tuple[Tensor, Tensor],
    share: float = 1.0,
    narrows: bool = False,
    for_keys: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Rotary embedding of queries and keys; `share` < 1 rotates only that part of each head and concatenates the rest.

    Tables that are wider than what they rotate widen it; with `narrows` it is cast back. `for_keys`: the keys have tables of their own.
    """
    if "rope" in m.kernels:
        return q, k
    dtype = q.itemsize if narrows else FP32
    if share >= 1.0:
        wide_q = rotate(m, q, *tables)
        wide_k = rotate(m, k, *(for_keys or tables))
        return _narrowed(m, wide_q, dtype), _narrowed(m, wide_k, dtype)
    parts = []
    for x in (q, k):
        turned = int(x.numel * share)
        head, rest = ops.narrow(m, x, turned), ops.narrow(m, x, x.numel - turned)
        parts.append((head, rest))
    del head, rest
    results = []
    for (head, rest), own in zip(parts, (tables, for_keys or tables), strict=True):
        results.append(ops.concat(m, (rotate(m, head, *own), rest)))
    return _narrowed(m, results[0], dtype), _narrowed(m, results[1], dtype)


def _narrowed(m: Machine, x: Tensor, itemsize: int) -> Tensor:
    """`x.to(dtype)` where x is wider."""
    return ops.cast(m, x, min(x.itemsize, itemsize))


def activation(m: Machine, x: Tensor, name: str) -> Tensor:
    """`ACT2FN[name]`: one kernel, or the formula of its parts for the old GELU approximations."""
    if name in ("gelu_new", "gelu_fast", "bloom_gelu"):
        return gelu_new(m, x)
    if name == "quick_gelu":  # `QuickGELUActivation`: x * sigmoid(1.702 * x)
        return ops.mul(m, x, ops.unary(m, ops.scale(m, x), keeps="output"))
    if name == "gelu" and m.written_gelu:
        return gelu_written(m, x)
    if name in ("relu2", "relu_squared"):
        return ops.power(m, ops.unary(m, x, keeps="output"))
    if name in ("relu", "tanh", "sigmoid"):
        return ops.unary(m, x, keeps="output")
    return ops.unary(m, x)


def gelu_new(m: Machine, x: Tensor) -> Tensor:
    """`NewGELUActivation`: 0.5 * x * (1 + tanh(c * (x + 0.044715 * x**3))), operation by operation."""
    half = ops.scale(m, x)
    cube = ops.power(m, x)
    cube = ops.scale(m, cube)
    inner = ops.add(m, x, cube)
    del cube
    inner = ops.scale(m, inner)
    inner = ops.unary(m, inner, keeps="output")
    inner = ops.shift(m, inner)
    return ops.mul(m, half, inner)


def gelu_written(m: Machine, x: Tensor) -> Tensor:
    """0.5 * x * (1 + erf(x / sqrt(2))), operation by operation."""
    half = ops.scale(m, x)
    inner = ops.unary(m, ops.scale(m, x))
    return ops.mul(m, half, ops.shift(m, inner))


def xielu(m: Machine, x: Tensor, positive: Parameter, negative: Parameter) -> Tensor:
    """`XIELUActivation._xielu_python` (transformers 5.24 `activations.py`): both branches, chosen by `where`."""
    if "xielu" in m.kernels:  # the kernel of nickjbrowning/XIELU
        return ops.unary(m, x)
    condition = m.new(x.numel, BYTE)

    def wide(t: Tensor) -> Tensor:
        """`softplus` and `expm1` are on autocast's float32 list."""
        return ops.cast(m, t, FP32) if m.autocast else t

    right = ops.add(m, ops.mul(m, ops.mul(m, ops.unary(m, wide(positive)), x), x), ops.scale(m, x))
    bent = ops.unary(m, wide(ops.clamp(m, x)), keeps="output")
    left = ops.add(m, ops.mul(m, ops.subtract(m, bent, x), ops.shift(m, ops.unary(m, wide(negative)))), ops.scale(m, x))
    out = m.new(x.numel, right.itemsize)
    numel, itemsize = out.numel, out.itemsize
    del bent

    def rule(g: Tensor) -> Grads:
        return m.new(numel, itemsize), m.new(numel, itemsize)

    return m.tape.record(out, (right, left), rule, (condition.storage,))


def gated_mlp(m: Machine, x: Tensor, gate: Linear, up: Linear, down: Linear, act: str) -> Tensor:
    """`down(act(gate(x)) * up(x))`, or its fused SwiGLU kernel."""
    if fuses(m, gate, up, down):
        return fused_mlp(m, x, gate, up, down)
    if "swiglu" in m.kernels or "glu" in m.kernels:
        return apply(m, down, fused_swiglu(m, apply(m, gate, x), apply(m, up, x)))
    return apply(m, down, ops.mul(m, activation(m, apply(m, gate, x), act), apply(m, up, x)))


def fused_swiglu(m: Machine, gate: Tensor, up: Tensor) -> Tensor:
    """A Triton SwiGLU (Liger `ops/swiglu.py`, Unsloth `kernels/swiglu.py`): keeps gate and up, and writes their gradients into them."""
    out = m.new(gate.numel, gate.itemsize)
    numel, itemsize = gate.numel, gate.itemsize
    kept = [gate.storage, up.storage]

    def rule(g: Tensor) -> Grads:
        right, left = Tensor(kept.pop(), numel, itemsize), Tensor(kept.pop(), numel, itemsize)
        return left, right

    return m.tape.record(out, (gate, up), rule, (gate.storage, up.storage), kernel=True)


def mlp(m: Machine, x: Tensor, up: Linear, down: Linear, act: str, drop: float = 0.0) -> Tensor:
    """`down(dropout(act(up(x))))`: the input stays an argument of the module, the results follow one another under one name."""
    inner = apply(m, up, x)
    inner = ops.dropout(m, activation(m, inner, act), drop)
    return apply(m, down, inner)
