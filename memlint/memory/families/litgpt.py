"""litgpt's own decoder: one fused QKV projection per layer, its own norms, rotary embedding in float32, LoRA padded to the full width.

Read in litgpt's repository at 8641822 (2023-10), a4aebcdd (2024-06) and in the package 0.5.13: `model.py`, `lora.py`, `adapter.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.attention import Shape, attend, repeat_kv
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import Linear, apply, product
from memlint.memory.machine import Machine
from memlint.memory.result import NoPage
from memlint.memory.tensor import FP32, Parameter, Storage, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import NamedTuple

LAYER_NORM = {"gpt_neox", "stablelm_alpha", "phi", "falcon", "gpt2", "stablelm"}
PARALLEL = {"gpt_neox", "stablelm_alpha", "phi", "falcon"}
SHARED_NORM = {"phi", "falcon"}
PLAIN_MLP = {"gpt_neox", "stablelm_alpha", "phi", "falcon", "gpt2"}
HEAD_BIAS = {"phi"}
NO_BIAS = {"falcon"}


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The decoder with `layers` blocks."""
    if not a.hidden_size or not a.heads:
        raise NoPage(f"litgpt has no model of type {a.model_type!r}")
    hidden = a.hidden_size
    head_dim = a.head_dim or hidden // a.heads
    b.enter_layer(-1)
    table = b.embedding("wte", b.setup.vocabulary, hidden)
    rotated = int(head_dim * float(a.config.get("rotary_pct") or a.config.get("partial_rotary_factor") or 1.0))
    tables: list[tuple[Tensor, Tensor]] = []

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        x = ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens))
        if a.model_type.startswith("gemma"):
            x = ops.scale(m, x)
        tables[:] = [(m.new(m.sequence * rotated, FP32), m.new(m.sequence * rotated, FP32))]
        return x

    blocks = [_block(b, a, index, head_dim, rotated, tables) for index in range(layers)]
    b.enter_layer(-1)
    final = _norm(b, a, "ln_f", hidden)
    head = b.linear("lm_head", hidden, b.setup.vocabulary, bias=a.model_type in HEAD_BIAS)
    lora = b.setup.adapter == "lora" and "lm_head" in (b.setup.adapter_targets or ())
    pair = _pair(b, "lm_head", hidden, b.setup.vocabulary) if lora else None
    head.tuner = None

    def logits(m: Machine, x: Tensor) -> Tensor:
        out = _adapted(m, head, pair, x)
        if a.config.get("final_logit_softcapping"):
            out = ops.scale(m, ops.unary(m, ops.scale(m, out), keeps="output"))
        return out

    return Model([Stage(embed, blocks, final)], logits, head, hidden, b.setup.vocabulary)


class _Pair(NamedTuple):
    a: Parameter
    b: Parameter
    rank: int


def _pair(b: Builder, name: str, fin: int, fout: int, parts_count: int = 1) -> _Pair:
    rank = b.setup.lora_rank * parts_count
    size = b.setup.adapter_itemsize
    return _Pair(
        b.make(f"{name}.lora_A", "adapter", (rank, fin), size, True, "adapters"),
        b.make(f"{name}.lora_B", "adapter", (fout, b.setup.lora_rank), size, True, "adapters"),
        rank,
    )


def _norm(b: Builder, a: Architecture, name: str, width: int) -> Callable[[Machine, Tensor], Tensor]:
    weight = b.norm(name, width)
    if a.model_type in LAYER_NORM:
        bias = b.vector(f"{name}.bias", width)
        return lambda m, x: parts.layer_norm(m, x, weight, bias, width)
    unit_offset = a.model_type.startswith("gemma")

    def norm(m: Machine, x: Tensor) -> Tensor:
        if "rms_norm" in m.kernels:
            return parts.fused_norm(m, x, weight, width)
        dtype = x.itemsize
        x = ops.cast(m, x, FP32)
        mean = ops.mean_last(m, ops.mul(m, x, x), width)
        x = ops.mul(m, x, ops.small(m, ops.shift(m, mean)))
        x = ops.cast(m, x, dtype)
        return ops.mul(m, x, ops.shift(m, weight) if unit_offset else weight)

    return norm


def _rope(m: Machine, x: Tensor, share: float, tables: tuple[Tensor, Tensor]) -> Tensor:
    """`apply_rope` on the rotated part (float32 tables, result cast back), then a concatenation with the rest."""
    if "rope" in m.kernels:
        return x
    dtype = x.itemsize
    turned = x if share >= 1 else ops.narrow(m, x, int(x.numel * share))
    rest = ops.narrow(m, x, x.numel - turned.numel)
    first, second = ops.narrow(m, turned, turned.numel // 2), ops.narrow(m, turned, turned.numel // 2)
    spun = ops.concat(m, (ops.scale(m, second), first))
    del first, second
    roped = ops.add(m, ops.mul(m, turned, tables[0]), ops.mul(m, spun, tables[1]))
    del spun
    roped = ops.cast(m, roped, dtype)
    return ops.concat(m, (roped, rest) if rest.numel else (roped,))


def _adapted(m: Machine, layer: Linear, pair: _Pair | None, x: Tensor) -> Tensor:
    """`LoRALinear.forward`."""
    pretrained = apply(m, layer, x)
    if pair is None:
        return pretrained
    inner = ops.dropout(m, x, _dropout(layer))
    low = product(m, inner, pair.a, None, layer.fin, pair.rank)
    del inner
    lora = ops.scale(m, product(m, low, pair.b, None, pair.rank, layer.fout))
    return ops.add(m, pretrained, lora)


def _dropout(layer: Linear) -> float:
    return layer.dropout


def _adapted_qkv(m: Machine, layer: Linear, pair: _Pair | None, width: int, copies: bool, x: Tensor) -> Tensor:
    """`LoRAQKVLinear.forward`: the update of the enabled parts (`width` columns) is padded with zeros to the full width.

    `index_copy` keeps its source for its shape (torch `derivatives.yaml`, `expand_as(source)`), so the unpadded update stays.
    """
    pretrained = apply(m, layer, x)
    if pair is None:
        return pretrained
    rows = x.numel // layer.fin
    low = product(m, ops.dropout(m, x, layer.dropout), pair.a, None, layer.fin, pair.rank)
    update = _grouped(m, low, pair, rows * width)
    del low
    if width < layer.fout:
        update = _padded(m, update, rows * layer.fout, copies)
    update = ops.scale(m, update)
    return ops.add(m, pretrained, update)


def _grouped(m: Machine, low: Tensor, pair: _Pair, numel: int) -> Tensor:
    """`F.conv1d` with kernel size 1: keeps its input and weight."""
    out = m.new(numel, low.itemsize)
    n, size, w = low.numel, low.itemsize, pair.b.numel
    return m.tape.record(out, (low, pair.b), lambda g: (m.new(n, size), m.new(w, size)), (low.storage,))


def _padded(m: Machine, update: Tensor, numel: int, copies: bool) -> Tensor:
    n, size = update.numel, update.itemsize
    if copies:
        zeros = m.new(numel, size)
        update = ops.copy(m, update)
        out = m.new(numel, size)
        del zeros
    else:
        out = m.new(numel, size)
    return m.tape.record(out, (update,), lambda g: (m.new(n, size),), (update.storage,))


def _block(b: Builder, a: Architecture, index: int, head_dim: int, rotated: int, tables: list[tuple[Tensor, Tensor]]) -> Block:
    b.enter_layer(index)
    setup = b.setup
    hidden, heads = a.hidden_size or 0, a.heads or 1
    groups = a.kv_heads or heads
    inner = a.intermediate_size or 4 * hidden
    bias = a.model_type in LAYER_NORM and a.model_type not in NO_BIAS
    targets = set(setup.adapter_targets or ()) if setup.adapter == "lora" else set()
    widths = {"q_proj": heads * head_dim, "k_proj": groups * head_dim, "v_proj": groups * head_dim}
    enabled = [name for name in widths if name in targets]

    def linear(name: str, fin: int, fout: int, logical: str, biased: bool = bias) -> tuple[Linear, _Pair | None]:
        layer = b.linear(name, fin, fout, biased)
        layer.tuner = None
        layer.dropout = setup.adapter_dropout
        return layer, _pair(b, name, fin, fout) if logical in targets else None

    first = _norm(b, a, "norm_1", hidden)
    total = sum(widths.values())
    qkv, _ = linear("attn", hidden, total, "", bias or a.model_type == "qwen2")
    update = sum(widths[name] for name in enabled)
    qkv_pair = _pair(b, "attn", hidden, update, len(enabled)) if enabled else None
    proj, proj_pair = linear("proj", heads * head_dim, hidden, "o_proj")
    parallel = a.model_type in PARALLEL
    second = (
        None
        if (parallel and a.model_type in SHARED_NORM and groups <= 1) or a.model_type == "phi"
        else _norm(b, a, "norm_2", hidden)
    )
    post = a.model_type == "gemma2"
    post_norms = (_norm(b, a, "post_attention_norm", hidden), _norm(b, a, "post_mlp_norm", hidden)) if post else None
    if a.model_type in PLAIN_MLP:
        mlp = [linear("fc", hidden, inner, "mlp"), linear("proj", inner, hidden, "mlp")]
    else:
        mlp = [linear("fc_1", hidden, inner, "mlp"), linear("fc_2", hidden, inner, "mlp"), linear("proj", inner, hidden, "mlp")]
    act = "gelu" if a.model_type.startswith("gemma") or a.model_type in PLAIN_MLP else "silu"
    softcap = bool(a.config.get("attn_logit_softcapping"))
    prompt = _prompt(b, a, index, head_dim)

    def attention(m: Machine, x: Tensor) -> Tensor:
        fused = _adapted_qkv(m, qkv, qkv_pair, update, setup.stack.litgpt_copies_padding, x)
        rows = x.numel // hidden
        q, k, v = ops.split(m, fused, tuple(rows * w for w in widths.values()))
        shape = Shape(m.batch, m.sequence, m.sequence, heads, groups, head_dim, head_dim, softcap=softcap)
        if groups not in (1, heads):
            k, v = repeat_kv(m, k, shape), repeat_kv(m, v, shape)
            q = ops.copy(m, q)
        elif groups == 1 and heads > 1 and not setup.stack.litgpt_broadcasts:
            k, v = repeat_kv(m, k, shape), repeat_kv(m, v, shape)
        share = rotated / head_dim
        q_roped = _rope(m, q, share, tables[-1])
        k = _rope(m, k, share, tables[-1])
        q = q_roped
        del q_roped, fused
        broadcasts = groups == 1 and heads > 1 and setup.stack.litgpt_broadcasts
        expanded = shape._replace(kv_heads=1 if broadcasts else heads, broadcasts_kv=broadcasts)
        # q is a concatenation, so the kernel's output has its (batch, heads, sequence) layout and `reshape` copies it.
        mixed = ops.copy(m, attend(m, q, k, v, expanded))
        if prompt is not None:
            mixed = prompt(m, q, mixed)
        return _adapted(m, proj, proj_pair, mixed)

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        if len(mlp) == 2:
            return _adapted(m, *mlp[1], parts.activation(m, _adapted(m, *mlp[0], x), act))
        gate = _adapted(m, *mlp[0], x)
        up = _adapted(m, *mlp[1], x)
        if "swiglu" in m.kernels:
            return _adapted(m, *mlp[2], parts.fused_swiglu(m, gate, up))
        inner = ops.mul(m, parts.activation(m, gate, act), up)
        return _adapted(m, *mlp[2], inner)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        normed = first(m, x)
        mixed = attention(m, normed)
        if post_norms is not None:
            mixed = post_norms[0](m, mixed)
        if parallel:
            fed = feed_forward(m, normed if second is None else second(m, x))
            return ops.add(m, ops.add(m, fed, mixed), x)
        del normed
        x = ops.add(m, mixed, x)
        assert second is not None
        fed = feed_forward(m, second(m, x))
        if post_norms is not None:
            fed = post_norms[1](m, fed)
        return ops.add(m, fed, x)

    return block


def _prompt(b: Builder, a: Architecture, index: int, head_dim: int) -> Callable[[Machine, Tensor, Tensor], Tensor] | None:
    """LLaMA-Adapter: from layer 2 on, a trained prompt is attended to beside the sequence and added through a gate.

    `adapter.py`: the prompt's keys and values come from the frozen QKV projection; its attention runs with a mask (no flash).
    """
    setup = b.setup
    if not setup.adapter.startswith(("llama_adapter", "adapter")) or index < 2 or not setup.adapter_prompt:
        return None
    hidden, heads = a.hidden_size or 0, a.heads or 1
    length = setup.adapter_prompt
    b.make("adapter_wte", "adapter", (length, hidden), setup.adapter_itemsize, True, "adapters")
    gate = b.make("gating_factor", "adapter", (heads,), setup.adapter_itemsize, True, "adapters")

    def attend_prompt(m: Machine, q: Tensor, mixed: Tensor) -> Tensor:
        size = q.itemsize
        mask = m.new(m.sequence * length, 1)
        bias = Storage(m.ledger, m.batch * heads * m.sequence * ((length + 15) // 16 * 16) * size)
        out = m.new(q.numel, size)
        n = q.numel
        lse = Storage(m.ledger, m.batch * heads * m.sequence * FP32)
        extra = m.tape.record(out, (q,), lambda g: (m.new(n, size),), (q.storage, out.storage, lse, bias))
        del mask
        return ops.add(m, mixed, ops.mul(m, gate, extra))

    return attend_prompt
