"""Linear layers as they really are in a fine-tune: plain, quantised, with adapters, cast by autocast."""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.autograd import View, alias
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, HALF, Grads, Parameter, Tensor
from memlint.typed import NamedTuple


class Quantised(NamedTuple):
    """A weight that is stored packed and unpacked to `compute` bytes per element for each use, by way of `raw` bytes if these are not 0."""

    method: str
    compute: int
    raw: int = 0

    def unpacked(self, m: Machine, numel: int) -> Tensor:
        """The weight to multiply with."""
        raw = m.new(numel, self.raw) if self.raw else None
        weight = m.new(numel, self.compute)
        del raw
        return weight


class Pair(NamedTuple):
    """A low-rank pair on a layer, or on each of stacked experts: `a` (rank x in), `b` (out x rank)."""

    a: Parameter
    b: Parameter
    dropout: float = 0.0


class Linear:
    """One linear layer: `fin` -> `fout`."""

    def __init__(self, name: str, fin: int, fout: int, weight: Parameter) -> None:
        self.name = name
        self.fin = fin
        self.fout = fout
        self.weight = weight
        self.bias: Parameter | None = None
        self.quantised: Quantised | None = None
        self.tuner: Callable[[Machine, Tensor], Tensor] | None = None
        """The forward pass of the layer that a tuner put around this one (`memlint.memory.tuners`)."""
        self.pair: Pair | None = None
        """The tuner's matrices where kernels may take them (`memlint.memory.lora_kernels`)."""
        self.viewed = False
        """It multiplies with a view of its weight (`x @ weight.T`), whose cast autocast does not cache."""
        self.dropout: float = 0.0
        """Dropout in front of the adapter where the framework keeps it on the layer (litgpt)."""


class Stack:
    """Weights of all experts in one parameter (transformers 5), `fin` -> `fout` each; `bias` one row per expert."""

    def __init__(self, name: str, count: int, fin: int, fout: int, weight: Parameter, quantised: Quantised | None = None) -> None:
        self.name = name
        self.count = count
        self.fin = fin
        self.fout = fout
        self.weight = weight
        self.bias: Parameter | None = None
        self.adapter: Pair | None = None
        self.quantised = quantised


def stacked(m: Machine, stack: Stack) -> Tensor:
    """The weight that is multiplied with: under LoRA the whole stack with its update added, made anew in every forward pass.

    peft 0.21.2, `tuners/lora/layer.py` `ParamWrapper`: `baddbmm(weight, B, A)` over the experts (`_LoraFactorsProxy`), or for a single
    matrix `weight + B @ A * scaling` (`_LoraParameterProxy`). The factors are cast to the weight's dtype. A packed stack is unpacked
    whole for each use (bitsandbytes `nn/parametrize.py`, `replace_parameter_4bit`).
    """
    adapter = stack.adapter
    base: Tensor = stack.weight
    if stack.quantised is not None:
        base = m.new(stack.count * stack.fout * stack.fin, stack.quantised.compute)
    if adapter is None:
        return base
    if stack.count == 1:
        delta = ops.scale(m, ops.matmul(m, adapter.b, adapter.a, base.numel))
        return ops.add(m, base, ops.cast(m, delta, base.itemsize))
    lhs, rhs = ops.cast(m, adapter.b, base.itemsize), ops.cast(m, adapter.a, base.itemsize)
    out = m.new(base.numel, base.itemsize)
    nl, nr, itemsize = lhs.numel, rhs.numel, base.itemsize

    def rule(g: Tensor) -> Grads:
        return m.new(nl, itemsize), m.new(nr, itemsize)

    return m.tape.record(out, (lhs, rhs), rule, (lhs.storage, rhs.storage), kernel=True)


def apply(m: Machine, layer: Linear, x: Tensor) -> Tensor:
    """`layer(x)`, adapters included."""
    call = (x,)  # holds what the module was given until it returns, whatever it is cast to (`Module._wrapped_call_impl(*args)`)
    result = layer.tuner(m, x) if layer.tuner is not None else base(m, layer, x)
    del call
    return result


def base(m: Machine, layer: Linear, x: Tensor) -> Tensor:
    """The layer without its adapter."""
    if layer.quantised is not None:
        return _quantised(m, layer, layer.quantised, x)
    weight = ops.merged(m, layer.weight)
    return product(m, x, alias(weight) if layer.viewed else weight, layer.bias, layer.fin, layer.fout)


def unpacked(m: Machine, layer: Linear) -> Tensor:
    """The base weight as a tensor to compute with: itself, or a packed one unpacked (peft 0.21.2 `utils/integrations.py`,
    `dequantize_module_weight`)."""
    if layer.quantised is None:
        return layer.weight
    return m.new(layer.weight.logical, layer.quantised.compute)


def product(m: Machine, x: Tensor, weight: Tensor, bias: Tensor | None, fin: int, fout: int) -> Tensor:
    """`F.linear`: keeps x if the weight is trained, and the weight (or autocast's copy) if x needs a gradient."""
    b = ops.autocast(m, bias) if bias is not None else None
    w = ops.autocast(m, weight)
    x = ops.autocast(m, x)
    out = m.new(x.numel // fin * fout, max(x.itemsize, w.itemsize))
    m.product(out)
    need_x, need_w, need_b = x.node is not None, w.node is not None, b is not None and b.node is not None
    nx, ix, nw, iw, rows = x.numel, x.itemsize, weight.numel, w.itemsize, fout
    operands = x.storage.ident, w.storage.ident

    def rule(g: Tensor) -> Grads:
        gb = m.new(rows, iw) if need_b else None
        if m.tape.replayed is not None:  # the weight's gradient first: nothing else needs the input
            gw = m.new(nw, iw) if need_w else None
            m.tape.ran(gw, g, operands[0])
            gx = m.new(nx, ix) if need_x else None
            m.tape.ran(gx, g, operands[1])
            return gx, gw, gb
        gx = View(m.new(nx, ix)) if need_x else None  # of rows: the product's result is two-dimensional
        gw = m.new(nw, iw) if need_w else None
        return gx, gw, gb

    saved = (x.storage if need_w else None, w.storage if need_x and not isinstance(w, Parameter) else None)
    return m.tape.record(out, (x, w, b), rule, saved, kernel=True)


def _int8(m: Machine, layer: Linear, x: Tensor) -> Tensor:
    """LLM.int8 (bitsandbytes 0.41 to 0.49.1 `autograd/_functions.py`, `MatMul8bitLt`): rows of the input in int8, products in int32, the
    weight unpacked in backward only, in the input's dtype. The input is an attribute of the graph's node (`ctx.tensors`): it lives as
    long as the loss does, and checkpointing does not see it. Columns with outliers, which are few, are not counted."""
    if m.has_graph and (x.node is not None or not m.tape.enabled):
        m.held.append((layer.weight.layer, x.storage))
    rows, numel, itemsize, weights = x.numel // layer.fin, x.numel, x.itemsize, layer.weight.logical
    half = m.new(0 if m.float16 and itemsize == HALF else numel, HALF)  # what is quantised is float16
    codes = m.new(numel, BYTE)
    del half
    wide = m.new(rows * layer.fout, FP32)
    out = m.new(rows * layer.fout, itemsize)
    del codes, wide
    need_x = x.node is not None

    def rule(g: Tensor) -> Grads:
        if not need_x:
            return (None,)
        weight = m.new(weights, itemsize)
        grad = m.new(numel, itemsize)
        del weight
        return (grad,)

    return m.tape.record(out, (x,), rule)


def _shifted(m: Machine, layer: Linear, quantised: Quantised, x: Tensor) -> Tensor:
    """GPTQ in torch's own operations (auto-gptq 0.4.2 `nn_modules/qlinear/qlinear_cuda_old.py`, from 128 rows on): the codes are shifted
    out of int32 and made int8, less their zero points, times their scales; the product is one that autograd knows. optimum 1.13.2
    `gptq/quantizer.py` gives every layer a bias, which is added out of place."""
    back, numel = x.itemsize, layer.fin * layer.fout
    x = ops.cast(m, x, quantised.compute)
    wide = m.new(numel, FP32)
    codes = m.new(numel, BYTE)
    del wide
    less = m.new(numel, BYTE)
    weight = m.new(numel, quantised.compute)
    del codes, less
    out = product(m, x, weight, None, layer.fin, layer.fout)
    del x, weight
    out = ops.shift(m, out)
    return ops.cast(m, out, back)


def _quantised(m: Machine, layer: Linear, quantised: Quantised, x: Tensor) -> Tensor:
    """A packed linear: unpack, multiply, drop the unpacked weight; again in backward (bitsandbytes 0.43, `MatMul4Bit`)."""
    if quantised.method == "bnb_8bit":
        return _int8(m, layer, x)
    if quantised.method == "gptq" and m.keeps_unpacked:
        return _shifted(m, layer, quantised, x)
    back = x.itemsize
    x = ops.cast(m, x, quantised.compute)
    needs = x.node is not None or not m.tape.enabled  # a checkpointed forward has the nodes that the tape leaves out
    if m.keeps_quantised_inputs and m.has_graph and quantised.method == "bnb_4bit" and needs:
        m.held.append((layer.weight.layer, x.storage))
    weight = quantised.unpacked(m, layer.fin * layer.fout)
    out = m.new(x.numel // layer.fin * layer.fout, quantised.compute)
    del weight
    need_x = x.node is not None
    nx, ix, nw = x.numel, x.itemsize, layer.fin * layer.fout

    def rule(g: Tensor) -> Grads:
        if not need_x:
            return (None,)
        weight = quantised.unpacked(m, nw)
        grad = m.new(nx, ix)
        del weight
        return (grad,)

    out = m.tape.record(out, (x,), rule, kernel=True)
    del x
    return ops.cast(m, out, back)
