"""Megatron-Core's decoder with Transformer Engine layers: one rank's share under tensor, sequence, context and pipeline parallelism.

Read in Megatron-LM 0.15 (`core/transformer/`, `core/tensor_parallel/`, `core/distributed/param_and_grad_buffer.py`) and Transformer Engine 2.11
(`pytorch/module/layernorm_linear.py`, `linear.py`): a fused norm-linear keeps the norm's input and output, a linear keeps its input, weight
gradients go straight into the float32 gradient buffer, SwiGLU keeps the up-projection's output.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.attention import Shape, flash
from memlint.memory.autograd import Grads
from memlint.memory.build import Builder
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, HALF, Parameter, Storage, Tensor
from memlint.models.architecture import Architecture


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The blocks of one pipeline stage; the embedding on the first, the head on the last."""
    setup, hidden = b.setup, a.hidden_size or 0
    split = setup.sharding.tensor
    first, last = setup.stage in ("only", "first"), setup.stage in ("only", "last")
    vocabulary = -(-setup.vocabulary // split)
    tokens = _stream(b)
    b.enter_layer(-1)
    table = b.parameter("word_embeddings", "embedding", (vocabulary, hidden)) if first or setup.tied else None

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        if first and table is not None:
            x = ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens))
            return _resized(m, x, tokens * hidden)
        received = m.new(tokens * hidden, HALF)
        return m.tape.leaf(received)

    blocks = [_block(b, a, index, tokens) for index in range(layers)]
    b.enter_layer(-1)
    if not last:
        return Model([Stage(embed, blocks, lambda m, x: x)], None, None, hidden, 0)
    final = b.norm("final_layernorm", hidden)
    weight = table if setup.tied and table is not None else b.parameter("output_layer", "linear", (vocabulary, hidden))

    def finish(m: Machine, x: Tensor) -> Tensor:
        return _norm(m, x, final, hidden)

    def head(m: Machine, x: Tensor) -> Tensor:
        return _linear(m, _resized(m, x, m.tokens * hidden), weight, hidden, vocabulary)

    return Model([Stage(embed, blocks, finish)], head, None, hidden, vocabulary)


def _stream(b: Builder) -> int:
    """Tokens of the residual stream on this rank: split over the tensor ranks with sequence parallelism."""
    sharding = b.setup.sharding
    tokens = b.machine.tokens
    return -(-tokens // sharding.tensor) if sharding.sequence_parallel else tokens


def _resized(m: Machine, x: Tensor, numel: int) -> Tensor:
    """Gather or scatter along the sequence: a new tensor where the size changes."""
    if x.numel == numel:
        return x
    out = m.new(numel, x.itemsize)
    back, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x,), lambda g: (m.new(back, itemsize),))


def _norm(m: Machine, x: Tensor, weight: Parameter, width: int) -> Tensor:
    """The norm half of a fused norm-linear: keeps its input and one float32 per row."""
    out = m.new(x.numel, x.itemsize)
    rsigma = Storage(m.ledger, x.numel // width * FP32)
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(out, (x, weight), lambda g: (m.new(numel, itemsize), None), (x.storage, rsigma))


def _linear(m: Machine, x: Tensor, weight: Parameter, fin: int, fout: int) -> Tensor:
    """A linear whose weight gradient is accumulated in place in the gradient buffer."""
    out = m.new(x.numel // fin * fout, x.itemsize)
    numel, itemsize = x.numel, x.itemsize
    saved = x.storage if weight.node is not None else None
    return m.tape.record(out, (x, weight), lambda g: (m.new(numel, itemsize), None), (saved,))


def _swiglu(m: Machine, both: Tensor) -> Tensor:
    out = m.new(both.numel // 2, both.itemsize)
    numel, itemsize = both.numel, both.itemsize
    return m.tape.record(out, (both,), lambda g: (m.new(numel, itemsize),), (both.storage,))


def _block(b: Builder, a: Architecture, index: int, tokens: int) -> Block:
    b.enter_layer(index)
    sharding, hidden = b.setup.sharding, a.hidden_size or 0
    split = sharding.tensor
    heads = (a.heads or 1) // split
    head_dim = a.head_dim or hidden // (a.heads or 1)
    kv_heads = max(1, (a.kv_heads or a.heads or 1) // split)
    q, kv = heads * head_dim, kv_heads * head_dim
    norm_1 = b.norm("input_layernorm", hidden)
    qkv = b.parameter("linear_qkv", "linear", (q + 2 * kv, hidden))
    proj = b.parameter("linear_proj", "linear", (hidden, q))
    norm_2 = b.norm("pre_mlp_layernorm", hidden)
    feed_forward = _experts(b, a) if _routed(a) else _dense(b, a)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        full = m.tokens
        residual = x
        x = _resized(m, _norm(m, x, norm_1, hidden), full * hidden)
        mixed = _linear(m, x, qkv, hidden, q + 2 * kv)
        query, key, value = ops.split(m, mixed, (full * q, full * kv, full * kv))
        del mixed
        query, key = ops.shift(m, query), ops.shift(m, key)
        value = ops.copy(m, value)
        shape = Shape(m.batch, m.sequence, m.sequence, heads, kv_heads, head_dim, head_dim)
        x = flash(m, query, key, value, shape)
        del query, key, value
        x = _resized(m, _linear(m, x, proj, q, hidden), tokens * hidden)
        x = ops.add(m, x, residual)
        residual = x
        x = feed_forward(m, _norm(m, x, norm_2, hidden))
        return ops.add(m, x, residual)

    return block


def _dense(b: Builder, a: Architecture) -> Callable[[Machine, Tensor], Tensor]:
    hidden = a.hidden_size or 0
    inner = (a.intermediate_size or 0) // b.setup.sharding.tensor
    fc1 = b.parameter("linear_fc1", "linear", (2 * inner, hidden))
    fc2 = b.parameter("linear_fc2", "linear", (hidden, inner))

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        back = x.numel
        x = _resized(m, x, m.tokens * hidden)
        x = _linear(m, _swiglu(m, _linear(m, x, fc1, hidden, 2 * inner)), fc2, inner, hidden)
        return _resized(m, x, back)

    return feed_forward


def _routed(a: Architecture) -> int:
    """How many experts; 0 for a dense model."""
    return int(a.config.get("num_local_experts") or a.config.get("n_routed_experts") or a.config.get("num_experts") or 0)


def _experts(b: Builder, a: Architecture) -> Callable[[Machine, Tensor], Tensor]:
    """This rank's experts, each token going to its `top_k`: permuted inputs and both projections are kept for every copy."""
    hidden = a.hidden_size or 0
    inner = int(a.config.get("moe_intermediate_size") or a.intermediate_size or 0)
    local = max(1, _routed(a) // b.setup.sharding.expert)
    top_k = int(a.config.get("num_experts_per_tok") or a.config.get("moe_topk") or 2)
    shared = int(a.config.get("n_shared_experts") or 0) * inner or int(a.config.get("shared_expert_intermediate_size") or 0)
    router = b.parameter("router", "linear", (_routed(a), hidden))
    fc1 = b.parameter("experts.fc1", "expert", (local * 2 * inner, hidden))
    fc2 = b.parameter("experts.fc2", "expert", (local * hidden, inner))
    pair = (
        (b.parameter("shared.fc1", "linear", (2 * shared, hidden)), b.parameter("shared.fc2", "linear", (hidden, shared)))
        if shared
        else None
    )

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        rows = x.numel // hidden
        m.transient(rows * router.shape[0], FP32)
        copies = _resized(m, ops.shift(m, x), rows * top_k * hidden)
        out = _linear(m, _swiglu(m, _linear(m, copies, fc1, hidden, 2 * inner)), fc2, inner, hidden)
        del copies
        out = _resized(m, out, x.numel)
        if pair is not None:
            extra = _linear(m, _swiglu(m, _linear(m, x, pair[0], hidden, 2 * shared)), pair[1], shared, hidden)
            out = ops.add(m, out, extra)
        return out

    return feed_forward


def no_head(m: Machine, hidden: Tensor) -> Tensor:
    """What a stage without the head does with its result: sends it on, and receives a gradient of its size."""
    numel, itemsize = hidden.numel, hidden.itemsize

    def rule(g: Tensor) -> Grads:
        return (m.new(numel, itemsize),)

    return m.tape.record(m.new(1, FP32), (hidden,), rule)
