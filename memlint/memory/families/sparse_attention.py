"""DeepSeek Sparse Attention: a scorer without gradients chooses keys, and each layer has a mask of what it did not choose.

Read in transformers 5.24 `models/deepseek_v32/modeling_deepseek_v32.py` and `models/glm_moe_dsa/modeling_glm_moe_dsa.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.llama import Rotary
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import BYTE, FP32, INT64, Storage, Tensor
from memlint.models.architecture import Architecture

INDEXED = ("deepseek_v32", "glm_moe_dsa")
"""The model types that have it."""

INT32 = 4

Turn = Callable[[Machine, Tensor, Tensor, Tensor], Tensor]
"""(machine, queries or keys, cos, sin) -> rotated."""
Choose = Callable[[Machine, Tensor, Tensor], tuple[Tensor, ...]]
"""(machine, hidden states, query residual) -> the layer's mask, and what else its attention holds beside it."""


def chooser_of(b: Builder, a: Architecture, rotary: Rotary, index: int, rank: int, interleaved: Turn) -> Choose | None:
    """The layer's choice of keys; None for models without.

    Layers without a scorer of their own (GLM 5.2, `indexer_types`) make the mask from the last one's choice.
    """
    if a.model_type not in INDEXED:
        return None
    config, shares, checkpointed = a.config, a.model_type == "glm_moe_dsa", b.setup.checkpointing != "none"
    top, hidden, layers = int(config.get("index_topk") or 2048), a.hidden_size or 0, b.setup.layers
    scored = _scorer(b, a, rotary, rank, interleaved if shares else parts.rotate) if _scores(a, index) else None

    def choose(m: Machine, x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        rows = m.batch * m.sequence * m.sequence
        numel = x.numel // hidden * min(top, m.sequence)
        wide = m.mask.itemsize if m.mask is not None and m.mask.itemsize != BYTE else b.setup.weight_itemsize
        masked = BYTE if m.attention == "sdpa" else wide
        # Arguments and results of a checkpointed layer live on: a causal mask that only the scorer reads, the choice for the next layers.
        if checkpointed and m.mask is None:
            _hold(m, -1, rows // m.batch)
        if checkpointed and shares and index < layers - 1:
            _hold(m, index, numel * INT32)
        enabled, m.tape.enabled = m.tape.enabled, False
        chosen = _chosen(m, scored(m, x, residual), masked, numel) if scored is not None else m.new(numel, INT32)
        fresh, wide_choice = m.new(rows, BYTE), m.new(numel, INT64)
        dropped = m.new(rows, BYTE)
        del fresh, wide_choice
        if masked == BYTE:
            inverse = m.new(rows, BYTE)
            mask = m.new(rows, BYTE)
            del inverse
        else:
            mask = m.new(rows, masked)
        m.tape.enabled = enabled
        return mask, dropped, chosen

    return choose


def _scores(a: Architecture, index: int) -> bool:
    """Whether this layer has a scorer of its own."""
    kinds = a.config.get("indexer_types") or ()
    every, offset = int(a.config.get("index_topk_freq") or 1), int(a.config.get("index_skip_topk_offset") or 2)
    return bool(kinds[index] == "full") if index < len(kinds) else max(index - offset + 1, 0) % every == 0


def _scorer(b: Builder, a: Architecture, rotary: Rotary, rank: int, turn: Turn) -> Callable[[Machine, Tensor, Tensor], Tensor]:
    """The scores of all pairs of positions (batch x queries x keys)."""
    config, hidden = a.config, a.hidden_size or 0
    heads, width = int(config.get("index_n_heads") or 64), int(config.get("index_head_dim") or 128)
    frozen, b.frozen = b.frozen, True
    wq_b = b.linear("wq_b", rank, heads * width)
    wk = b.linear("wk", hidden, width)
    weight, bias = b.norm("k_norm", width), b.vector("k_norm.bias", width)
    weights_proj = b.linear("weights_proj", hidden, heads)
    b.frozen = frozen

    def rotated(m: Machine, x: Tensor, numel: int) -> Tensor:
        cos, sin = rotary.tables[-1]
        return turn(m, ops.narrow(m, x, numel * rotary.width // width), cos, sin)

    def scored(m: Machine, x: Tensor, residual: Tensor) -> Tensor:
        rows = x.numel // hidden
        q = apply(m, wq_b, residual)
        k = parts.layer_norm(m, apply(m, wk, x), weight, bias, width)
        q_rot, k_rot = rotated(m, q, q.numel), rotated(m, k, k.numel)
        q_pass, k_pass = ops.narrow(m, q, q.numel - q_rot.numel), ops.narrow(m, k, k.numel - k_rot.numel)
        q, k = ops.concat(m, (q_rot, q_pass)), ops.concat(m, (k_rot, k_pass))
        scores = _pairs(m, q, k, rows)
        scores = ops.scale(m, scores)
        scores = ops.unary(m, scores)
        weights = ops.scale(m, ops.cast(m, apply(m, weights_proj, x), FP32))
        return ops.matmul(m, weights, scores, rows * m.sequence)

    def _pairs(m: Machine, q: Tensor, k: Tensor, rows: int) -> Tensor:
        """`matmul(q.float(), k.transpose(-1, -2).float().unsqueeze(1))`: the keys are copied for every query."""
        q, k = ops.cast(m, q, FP32), ops.cast(m, k, FP32)
        call = (q, k)
        q, k = ops.autocast(m, q), ops.autocast(m, k)
        scores = ops.matmul(m, q, ops.spread(m, k, rows * width * m.sequence), rows * heads * m.sequence)
        del call
        return scores

    return scored


def _chosen(m: Machine, scores: Tensor, masked: int, numel: int) -> Tensor:
    """The positions of the best keys of each query, once what a query may not see is gone."""
    if masked == BYTE:
        m.transient(m.sequence * m.sequence if m.mask is None else m.mask.numel, BYTE)
    scores = ops.shift(m, scores)
    values, indices = m.new(numel, scores.itemsize), m.new(numel, INT64)
    del values
    chosen = m.new(numel, INT32)
    del indices
    return chosen


def _hold(m: Machine, layer: int, nbytes: int) -> None:
    """Keep so many bytes until the step's backward is through, once for each layer."""
    if all(held != layer for held, _ in m.held):
        m.held.append((layer, Storage(m.ledger, nbytes)))
