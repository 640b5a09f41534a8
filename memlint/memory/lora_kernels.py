"""Kernels that compute several linear layers, with plain low-rank pairs on them, and their gradients as one operation.

Read in unsloth 2024.1 to 2026.8 `kernels/fast_lora.py`: `LoRA_MLP`, `LoRA_QKV`, `LoRA_W` and `matmul_lora`; axolotl's
(067b021c8b `kernels/lora.py`) descend from them. They keep their input (and the MLP its gate and up projections, whose product they
compute again), and write gradients into what they keep. They take layers without bias, with an adapter on each and without dropout
(`models/llama.py`, `patch_peft_model`); axolotl's also take dropout, of the input and once for all of them.
"""

from __future__ import annotations

from memlint.memory import ops
from memlint.memory.linear import Linear, Pair, unpacked
from memlint.memory.machine import Machine
from memlint.memory.tensor import HALF, Grads, Tensor


def fuses(m: Machine, *layers: Linear) -> bool:
    """Whether these layers are computed by one such kernel."""
    return "lora" in m.kernels and all(layer.pair is not None and layer.bias is None for layer in layers)


def fused_mlp(m: Machine, x: Tensor, gate: Linear, up: Linear, down: Linear) -> Tensor:
    """`LoRA_MLP`: `down(act(gate(x)) * up(x))`."""
    pairs = pairs_of(gate, up, down)
    dropped = _dropped(m, x, pairs[0])
    drops = dropped is not None
    itemsize, rows = _computed(m, x), x.numel // gate.fin
    e, g = _multiplied(m, gate, rows, itemsize), _multiplied(m, up, rows, itemsize)
    h = m.new(e.numel, itemsize)
    out = _multiplied(m, down, rows, itemsize)
    del h
    kept = [Tensor(t.storage, t.numel, t.itemsize) for t in (x, e, g)]

    def rule(dy: Tensor) -> Grads:
        x, e, g = kept
        kept.clear()
        h = m.new(e.numel, itemsize)
        m.transient(e.numel, itemsize)  # the low-rank part of it
        grads = _pair_gradients(m, pairs)
        weight = unpacked(m, up)
        del weight
        m.transient(x.numel, itemsize)
        weight = unpacked(m, gate)
        m.transient(x.numel, itemsize)
        del weight
        m.transient(x.numel, itemsize)
        del h, e, g
        # The gradient is written into the input.
        return (x, m.new(x.numel, itemsize) if drops else None, *grads)

    saved = (x.storage, dropped.storage if dropped is not None else None, e.storage, g.storage)
    return m.tape.record(out, (x, dropped, *_weights(pairs)), rule, saved)


def fused_projections(m: Machine, x: Tensor, layers: tuple[Linear, ...]) -> tuple[Tensor, ...]:
    """`LoRA_QKV`: projections of one input."""
    pairs = pairs_of(*layers)
    dropped = _dropped(m, x, pairs[0])
    drops = dropped is not None
    itemsize, rows = _computed(m, x), x.numel // layers[0].fin
    outs = tuple(_multiplied(m, layer, rows, itemsize) for layer in layers)
    kept = [Tensor(x.storage, x.numel, x.itemsize)]

    def rule(*gradients: Tensor) -> Grads:
        x = kept.pop()
        grads = _pair_gradients(m, pairs)
        for layer in layers:
            weight = unpacked(m, layer)
            m.transient(x.numel if layer is not layers[0] else 0, itemsize)
            del weight
            m.transient(x.numel, itemsize)
        # The gradient is written into the input.
        return (x, m.new(x.numel, itemsize) if drops else None, *grads)

    saved = (x.storage, dropped.storage if dropped is not None else None)
    return m.tape.record_many(outs, (x, dropped, *_weights(pairs)), rule, saved)


def fused_linear(m: Machine, x: Tensor, layer: Linear) -> Tensor:
    """`LoRA_W`: one layer."""
    pairs = pairs_of(layer)
    dropped = _dropped(m, x, pairs[0])
    drops = dropped is not None
    itemsize, rows = _computed(m, x), x.numel // layer.fin
    out = _multiplied(m, layer, rows, itemsize)
    numel = x.numel

    def rule(dy: Tensor) -> Grads:
        grads = _pair_gradients(m, pairs)
        weight = unpacked(m, layer)
        dx = m.new(numel, itemsize)
        del weight
        m.transient(numel, itemsize)
        return (dx, m.new(numel, itemsize) if drops else None, *grads)

    saved = (x.storage, dropped.storage if dropped is not None else None)
    return m.tape.record(out, (x, dropped, *_weights(pairs)), rule, saved)


def pairs_of(*layers: Linear) -> list[Pair]:
    """The layers' pairs."""
    return [layer.pair for layer in layers if layer.pair is not None]


def _dropped(m: Machine, x: Tensor, pair: Pair) -> Tensor | None:
    """The input that the low-rank part sees, where it is another one."""
    return ops.dropout(m, x, pair.dropout) if pair.dropout and m.training else None


def _weights(pairs: list[Pair]) -> list[Tensor]:
    return [weight for pair in pairs for weight in pair[:2]]


def _computed(m: Machine, x: Tensor) -> int:
    return HALF if m.autocast else x.itemsize


def _multiplied(m: Machine, layer: Linear, rows: int, itemsize: int) -> Tensor:
    """`matmul_lora`: the unpacked weight goes before the low-rank part is made, and added in place."""
    weight = unpacked(m, layer)
    out = m.new(rows * layer.fout, itemsize)
    del weight
    m.transient(rows * layer.fout, itemsize)
    return out


def _pair_gradients(m: Machine, pairs: list[Pair]) -> list[Tensor]:
    return [m.new(weight.numel, weight.itemsize) for weight in _weights(pairs)]
