"""Decoders whose feed-forward part is a mixture of experts.

transformers 5 (5.24, `integrations/moe.py`, `grouped_mm_experts_forward`) keeps the experts of a layer in two stacked parameters, sorts the
tokens by expert and multiplies group-wise. transformers 4 (4.48, `models/mixtral/modeling_mixtral.py`) has one MLP per expert and a
loop that takes each expert's tokens out and adds its result back (`index_add_`). Routers as in `models/<type>/modeling_<type>.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from memlint.memory import algebra, ops
from memlint.memory.build import Builder
from memlint.memory.families import mla, parts
from memlint.memory.families.linear_attention import hybrid_attention
from memlint.memory.families.llama import MakeAttention, Part, attention_of, decoder, mlp_of
from memlint.memory.families.llama_styles import STYLES, Style
from memlint.memory.families.model import Model
from memlint.memory.linear import Linear, Stack, apply, stacked
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, INT64, Parameter, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import Any, NamedTuple

LOOPED = 8
"""Experts that transformers 4's loop is simulated with; each then stands for several, with as many tokens in all."""


class Sparse(NamedTuple):
    """How a family routes and what its experts are."""

    router: str = "softmax"
    """softmax (float32 probabilities, top k), own_softmax (in the logits' dtype), sigmoid (DeepSeek V3), late_sigmoid (float32 behind the
    product only: MiniMax), deepseek_v2, late_softmax (over the chosen logits only)."""
    keeps_float: bool = False
    """The routing weights stay in float32, and with them the weighted outputs."""
    normalises: bool | None = None
    """Routing weights are divided by their sum; None: as `norm_topk_prob` says."""
    shared: str = ""
    """gated (times a sigmoid), plain, or none."""
    router_bias: bool = False
    clamps: bool = False
    """The gated activation of GPT-OSS: clamped halves, sigmoid, plus one; its experts have biases."""
    style: Style = Style()
    attention: MakeAttention = attention_of
    listed: tuple[str, str, str, str] = ("gate", "gate_proj", "up_proj", "down_proj")
    """Names of router, gate, up and down projection where they are layers of their own (transformers 4)."""
    adapted: bool = True
    """PEFT translates targets of transformers 4's names to the stacked parameters."""


SPARSE = {
    "mixtral": Sparse(keeps_float=True, normalises=True, listed=("gate", "w1", "w3", "w2")),
    "qwen2_moe": Sparse(shared="gated", adapted=False, style=Style(qkv_bias=True, out_bias=False)),
    "qwen3_moe": Sparse(style=Style(qk_norm="head")),
    "qwen3_vl_moe_text": Sparse(adapted=False, normalises=True, style=Style(qk_norm="head")),
    "olmoe": Sparse(style=Style(qk_norm="full")),
    "flex_olmo": Sparse(style=STYLES["olmo2"]),
    "granitemoe": Sparse("late_softmax", adapted=False, style=Style(scales_embedding=True, scales_residual=True, scales_logits=True)),
    "deepseek": Sparse(normalises=False, shared="plain", adapted=False),
    "deepseek_v2": Sparse("deepseek_v2", True, False, "plain", attention=mla.latent_attention),
    "deepseek_v3": Sparse("sigmoid", True, None, "plain", attention=mla.latent_attention),
    "kimi_k2": Sparse("sigmoid", True, None, "plain", attention=mla.latent_attention),
    "deepseek_v32": Sparse("sigmoid", True, None, "plain", attention=mla.latent_attention),
    "glm_moe_dsa": Sparse("sigmoid", True, None, "plain", attention=mla.latent_attention),
    "mistral4": Sparse("own_softmax", False, None, "plain", adapted=False, attention=mla.latent_attention),
    "glm4_moe_lite": Sparse("sigmoid", True, None, "plain", attention=mla.latent_attention),
    "minimax_m2": Sparse("late_sigmoid", True, True, style=Style(qk_norm="full", qkv_bias=False, out_bias=False, rope_concatenates=True),
                         listed=("gate", "w1", "w3", "w2")),
    "glm4v_moe_text": Sparse("sigmoid", True, None, "plain", style=Style(out_bias=False, rope_concatenates=True, own_positions=True)),
    "glm4_moe": Sparse("sigmoid", True, None, "plain", style=Style(out_bias=False, rope_concatenates=True, qk_norm="head")),
    "phimoe": Sparse("sparsemixer", normalises=False, adapted=False,
                     style=Style(norm="layer", norm_bias=True)),
    "qwen3_next": Sparse(shared="gated", style=Style(norm="gemma"), attention=hybrid_attention),
    "qwen3_5_moe_text": Sparse(shared="gated", normalises=True, adapted=False, style=Style(norm="gemma"), attention=hybrid_attention),
    "gpt_oss": Sparse("gpt_oss", router_bias=True, clamps=True, adapted=False, style=Style(norm="rms_promoted", sinks="column")),
}  # fmt: skip


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The decoder with `layers` blocks, dense ones where the configuration has them."""
    sparse = SPARSE[a.model_type]
    if sparse.adapted and not _has_loop(b, sparse):
        b.translated = frozenset(sparse.listed)

    def feed_forward(b: Builder, a: Architecture, style: Style, index: int) -> Part:
        return experts_of(b, a, sparse) if is_sparse(a.config, index) else mlp_of(b, a, style, index)

    rotary = mla.rotary_of(a) if sparse.attention is mla.latent_attention else None
    return decoder(b, a, layers, sparse.style, sparse.attention, feed_forward, rotary)


def _has_loop(b: Builder, sparse: Sparse) -> bool:
    """Experts are layers of their own."""
    return b.setup.stack.transformers < (5, 0) and not sparse.clamps


def is_sparse(config: Mapping[str, Any], index: int) -> bool:
    """Whether a layer has experts: by the list of layer kinds, the first dense ones, or every n-th layer."""
    kinds = config.get("mlp_layer_types")
    if isinstance(kinds, Sequence) and index < len(kinds):
        return bool(kinds[index] == "sparse")
    if index in (config.get("mlp_only_layers") or ()) or index < int(config.get("first_k_dense_replace") or 0):
        return False
    step = int(config.get("decoder_sparse_step") or 1)
    return (index + 1) % step == 0


def number_of_experts(config: Mapping[str, Any]) -> int:
    """Experts of one layer."""
    return next(int(config[key]) for key in ("num_local_experts", "num_experts", "n_routed_experts") if config.get(key))


def experts_of(b: Builder, a: Architecture, sparse: Sparse) -> Part:
    """Router, experts and shared experts of one layer."""
    hidden = a.hidden_size or 0
    count = number_of_experts(a.config)
    top_k = int(a.config.get("num_experts_per_tok") or 2)
    inner = int(a.config.get("moe_intermediate_size") or a.intermediate_size or 0)
    normalises = (
        bool(a.config.get("norm_topk_prob", sparse.router == "sigmoid")) if sparse.normalises is None else sparse.normalises
    )
    act = a.activation or "silu"
    shared = _shared(b, a, sparse, inner)
    if _has_loop(b, sparse):
        return _looped(b, a, sparse, count, top_k, inner, normalises, shared)
    gate, *listed = sparse.listed
    b.parent = "mlp"
    router = b.stack("gate", 1, hidden, count, (gate,) if sparse.adapted else (), "router")
    router_bias = b.vector("router.bias", count) if sparse.router_bias else None
    b.parent = "experts"
    both = b.stack("gate_up_proj", count, hidden, 2 * inner, tuple(listed[:2]) if sparse.adapted else ())
    if sparse.clamps:
        both.bias = b.vector("gate_up_proj_bias", count * 2 * inner)
    down = b.stack("down_proj", count, inner, hidden, tuple(listed[2:]) if sparse.adapted else ())
    if sparse.clamps:
        down.bias = b.vector("down_proj_bias", count * hidden)

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        added = shared(m, x) if shared is not None and sparse.shared == "gated" else None
        weights, chosen = route(m, sparse, x, stacked(m, router), router_bias, count, top_k, normalises)
        mixed = dispatch(m, x, weights, chosen, both, down, top_k, clamped_glu if sparse.clamps else lambda m, t: glu(m, t, act))
        if added is None and shared is not None:
            added = shared(m, x)
        return ops.add(m, mixed, added) if added is not None else mixed

    return feed_forward


def dispatch(
    m: Machine, x: Tensor, weights: Tensor, chosen: Tensor, both: Stack, down: Stack, top_k: int,
    gate: Callable[[Machine, Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """`grouped_mm_experts_forward`: rows sorted by expert, two grouped products, weighted, unsorted and summed."""
    gate_up, out = stacked(m, both), stacked(m, down)
    hidden = both.fin
    rows = x.numel // hidden * top_k
    order, permutation, places = m.new(rows, INT64), m.new(rows, INT64), m.new(rows, INT64)
    picked = ops.gather(m, x, places, rows * hidden)
    del places
    weights = ops.gather(m, weights, permutation, rows)
    offsets = m.new(both.count, 4)
    projected = algebra.grouped_mm(m, picked, gate_up, offsets, rows * both.fout)
    if both.bias is not None:
        projected = _biased(m, projected, both.bias, order)
    projected = gate(m, projected)
    projected = algebra.grouped_mm(m, projected, out, offsets, rows * down.fout)
    if down.bias is not None:
        projected = _biased(m, projected, down.bias, order)
    weighted = ops.mul(m, projected, weights)
    inverse = m.new(rows, INT64)
    weighted = ops.gather(m, weighted, inverse, rows * hidden)
    return ops.cast(m, ops.sum_groups(m, weighted, rows // top_k * hidden), x.itemsize)


def _biased(m: Machine, x: Tensor, bias: Parameter, expert: Tensor) -> Tensor:
    """`x.add_(bias[expert])`."""
    rows = ops.gather(m, bias, expert, x.numel)
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(Tensor(x.storage, numel, itemsize), (x, rows), lambda g: (g, g))


def glu(m: Machine, both: Tensor, act: str) -> Tensor:
    """`act(gate) * up` of the two halves."""
    gate, up = ops.split(m, both, (both.numel // 2, both.numel // 2))
    return ops.mul(m, parts.activation(m, gate, act), up)


def clamped_glu(m: Machine, both: Tensor) -> Tensor:
    """GPT-OSS: interleaved halves, clamped; `(up + 1) * gate * sigmoid(gate * alpha)`."""
    gate, up = ops.narrow(m, both, both.numel // 2), ops.narrow(m, both, both.numel // 2)
    gate, up = ops.clamp(m, gate), ops.clamp(m, up)
    product = ops.mul(m, gate, ops.unary(m, ops.scale(m, gate), keeps="output"))
    return ops.mul(m, ops.shift(m, up), product)


def route(
    m: Machine, sparse: Sparse, x: Tensor, weight: Tensor, bias: Parameter | None, count: int, top_k: int, normalises: bool
) -> tuple[Tensor, Tensor]:
    """The routing weights and the chosen experts (tokens x top_k)."""
    tokens = x.numel // (weight.numel // count)
    if sparse.router in ("sigmoid", "deepseek_v2"):
        x, weight = ops.cast(m, x, FP32), ops.cast(m, weight, FP32)
    logits = _logits(m, x, weight, bias, tokens * count)
    dtype = logits.itemsize
    chosen = m.new(tokens * top_k, INT64)
    if sparse.router == "late_softmax":
        picked = ops.gather(m, ops.cast(m, logits, FP32), chosen, tokens * top_k)
        return ops.cast(m, ops.softmax(m, picked, FP32), x.itemsize), chosen
    if sparse.router == "gpt_oss":
        picked = ops.gather(m, logits, chosen, tokens * top_k)
        return ops.softmax(m, picked, dtype), chosen
    if sparse.router in ("sigmoid", "late_sigmoid"):
        scores = ops.unary(m, ops.cast(m, logits, FP32), keeps="output")
        m.transient(tokens * count * 2, FP32)
    else:
        if sparse.keeps_float:
            logits = ops.cast(m, logits, FP32)
        scores = ops.softmax(m, logits, dtype if sparse.router == "own_softmax" else FP32)
    weights = ops.gather(m, scores, chosen, tokens * top_k)
    del scores, logits
    if normalises:
        kept = m.new(tokens * top_k, FP32)
        weights = normalised(m, weights, kept, tokens)
    if sparse.router in ("sigmoid", "deepseek_v2"):
        weights = ops.scale(m, weights)
    return weights if sparse.keeps_float else ops.cast(m, weights, dtype), chosen


def _logits(m: Machine, x: Tensor, weight: Tensor, bias: Parameter | None, numel: int) -> Tensor:
    """`F.linear` with the router's weight."""
    logits = ops.matmul(m, x, weight, numel)
    return ops.add(m, logits, bias) if bias is not None else logits


def normalised(m: Machine, weights: Tensor, kept: Tensor, tokens: int) -> Tensor:
    """`weights /= weights.sum(-1)`, in place: the old values are cloned for backward."""
    total = m.new(tokens, FP32)
    numel = weights.numel
    return m.tape.record(
        Tensor(weights.storage, numel, FP32), (weights,), lambda g: (m.new(numel, FP32),), (total.storage, kept.storage)
    )


def _shared(b: Builder, a: Architecture, sparse: Sparse, inner: int) -> Part | None:
    """The experts that every token passes."""
    if not sparse.shared:
        return None
    hidden = a.hidden_size or 0
    width = int(a.config.get("shared_expert_intermediate_size") or inner * int(a.config.get("n_shared_experts") or 1))
    mlp = mlp_of(b, a, sparse.style, inner=width, parent="shared_expert")
    if sparse.shared == "plain":
        return mlp
    b.parent = "mlp"
    gate = b.linear("shared_expert_gate", hidden, 1)
    return lambda m, x: _gated(m, x, gate, mlp)


def _gated(m: Machine, x: Tensor, gate: Linear, mlp: Part) -> Tensor:
    out = mlp(m, x)
    return ops.mul(m, ops.unary(m, apply(m, gate, x), keeps="output"), out)


def _looped(
    b: Builder, a: Architecture, sparse: Sparse, count: int, top_k: int, inner: int, normalises: bool, shared: Part | None
) -> Part:
    """transformers 4: one MLP per expert, visited one after the other."""
    hidden = a.hidden_size or 0
    act = a.activation or "silu"
    b.parent = "mlp"
    router = b.linear(sparse.listed[0], hidden, count)
    b.parent = "experts"
    visited = min(count, LOOPED)
    each = count // visited
    experts = [
        (
            b.linear(sparse.listed[1], hidden, inner, copies=each),
            b.linear(sparse.listed[2], hidden, inner, copies=each),
            b.linear(sparse.listed[3], inner, hidden, copies=each),
        )
        for _ in range(visited)
    ]

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        tokens = x.numel // hidden
        logits = apply(m, router, x)
        scores = ops.softmax(m, logits, FP32)
        chosen = m.new(tokens * top_k, INT64)
        weights = ops.gather(m, scores, chosen, tokens * top_k)
        del scores
        if normalises:
            weights = normalised(m, weights, m.new(tokens * top_k, FP32), tokens)
        weights = ops.cast(m, weights, x.itemsize)
        mixed = m.new(x.numel, x.itemsize)
        rows = tokens * top_k // visited
        for gate, up, down in experts:
            index = m.new(2 * rows, INT64)
            current = ops.gather(m, x, index, rows * hidden)
            current = parts.gated_mlp(m, current, gate, up, down, act)
            current = ops.mul(m, current, ops.gather(m, weights, index, rows))
            mixed = index_add(m, mixed, ops.cast(m, current, x.itemsize), index)
            del current
        added = shared(m, x) if shared is not None else None
        return ops.add(m, mixed, added) if added is not None else mixed

    return feed_forward


def index_add(m: Machine, into: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """`into.index_add_(0, index, rows)`, in place: keeps the index; backward picks the rows out of the gradient."""
    numel, itemsize = rows.numel, rows.itemsize
    out = Tensor(into.storage, into.numel, into.itemsize, into.node, into.index)
    return m.tape.record(out, (into, rows), lambda g: (g, m.new(numel, itemsize)), (index.storage,))
