"""Megatron-Core's decoder with Transformer Engine layers: one rank's share under tensor, sequence, context and pipeline parallelism.

Read in Megatron-LM 0.15 (`core/transformer/`, `core/tensor_parallel/`, `core/distributed/param_and_grad_buffer.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.attention import Shape, flash
from memlint.memory.build import Builder
from memlint.memory.exchange import exchanged
from memlint.memory.families.megatron_delta import delta_net, is_linear
from memlint.memory.families.megatron_experts import experts, routed
from memlint.memory.families.megatron_loss import over_logits
from memlint.memory.families.megatron_mtp import predictor, with_predictions
from memlint.memory.families.megatron_parts import Layer, activated, linear, linear_of, norm, number, swiglu
from memlint.memory.families.megatron_vision import add_tower, tower_weights
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.families.vision_language import text_of
from memlint.memory.loss import POOLED
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.tensor import HALF, Tensor
from memlint.models.architecture import Architecture

UNGATED = frozenset({"gelu", "relu", "gelu_new"})
"""Activations of Megatron-LM's GPT without `--swiglu`."""

NATIVE = frozenset({"megatron_fused_ce", "torch_ce"})
"""Loss kernels of Megatron-LM's own; the other is Transformer Engine's."""

APART = 1.2
"""How far the weights of a layer may be from the model's average layer: first dense layers, a vision tower and the linear attention of
hybrid models, which is built as grouped attention, stay below."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The blocks of one pipeline stage; the embedding on the first, the head on the last."""
    seen = tower_weights(b, a)
    if "text_config" in a.config:
        a = text_of(a)._replace(params=a.params - seen if a.params else None)
    if not (a.heads and a.hidden_size and a.layers) or any(
        key.startswith("mamba") for key in a.config if key != "mamba_ssm_dtype"
    ):
        raise _unknown(a)
    setup, hidden = b.setup, a.hidden_size or 0
    split = setup.sharding.tensor
    first, last = setup.stage in ("only", "first"), setup.stage in ("only", "last")
    vocabulary = -(-setup.vocabulary // split)
    tokens = _stream(b)
    b.enter_layer(-1)
    add_tower(b, seen)
    table = b.parameter("word_embeddings", "embedding", (vocabulary, hidden)) if first or setup.tied else None

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        if first and table is not None:
            x = ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens))
            return ops.resized(m, x, tokens * hidden)
        received = m.new(tokens * hidden, HALF)
        return m.tape.leaf(received)

    blocks = [_block(b, a, index, tokens) for index in range(layers)]
    if layers:
        _checked(b, a, layers - 1)
    b.enter_layer(-1)
    if not last:
        return Model([Stage(embed, blocks, lambda m, x: x)], None, None, hidden, 0)
    final = b.norm("final_layernorm", hidden)
    weight = table if setup.tied and table is not None else b.parameter("output_layer", "linear", (vocabulary, hidden))

    predictors = []
    for _ in range(setup.predictions):
        if not first:  # a second embedding, for the tokens to come
            b.parameter("word_embeddings", "linear", (vocabulary, hidden))
        predictors.append(predictor(b, hidden, tokens, _layer(b, a, _attention(b, a), _feed_forward(b, a), tokens)))

    def finish(m: Machine, x: Tensor) -> Tensor:
        return norm(m, x, final, hidden)

    def head(m: Machine, x: Tensor) -> Tensor:
        return linear(m, ops.resized(m, x, m.tokens * hidden), weight, hidden, vocabulary)

    loss = None
    if setup.loss_kernel in NATIVE and setup.objective not in POOLED:
        loss = with_predictions(over_logits(head, vocabulary, setup.loss_kernel == "megatron_fused_ce"), predictors)
    return Model([Stage(embed, blocks, finish)], head, None, hidden, vocabulary, loss=loss)


def _checked(b: Builder, a: Architecture, last: int) -> None:
    """Raise `CannotEstimate` for a model whose layers are of another kind (state-space models, encoder-decoders): they do not count as
    many weights as the last one built here."""
    sharding = b.setup.sharding
    splits = {"expert": sharding.expert * sharding.expert_tensor, "linear": sharding.tensor}
    built = sum(
        p.numel * (1 if p.name == "router" else splits.get(p.kind, 1))
        for p in b.parameters
        if p.layer == last and p.kind != "adapter"
    )
    embeddings = (a.vocab_size or 0) * (a.hidden_size or 0) * (1 if a.tied else 2)
    if a.params and a.layers and not 1 / APART < built / ((a.params - embeddings) / a.layers) < APART:
        raise _unknown(a)


def _unknown(a: Architecture) -> CannotEstimate:
    return CannotEstimate(f"the Megatron page does not know the layers of {a.name} ({a.model_type})")


def _stream(b: Builder) -> int:
    """Tokens of the residual stream on this rank: split over the tensor ranks with sequence parallelism."""
    sharding = b.setup.sharding
    tokens = b.machine.tokens
    return -(-tokens // sharding.tensor) if sharding.sequence_parallel else tokens


def _block(b: Builder, a: Architecture, index: int, tokens: int) -> Block:
    b.enter_layer(index)
    attention = delta_net(b, a, linear_of) if is_linear(a, index) else _attention(b, a)
    dense = b.setup.stage in ("only", "first") and index < number(a, "first_k_dense_replace", "dense_layers")
    return _layer(b, a, attention, _dense(b, a) if dense else _feed_forward(b, a), tokens)


def _attention(b: Builder, a: Architecture) -> Layer:
    return _latent(b, a) if number(a, "kv_lora_rank") else _grouped(b, a)


def _feed_forward(b: Builder, a: Architecture) -> Layer:
    return experts(b, a) if routed(a) else _dense(b, a)


def _layer(b: Builder, a: Architecture, attention: Layer, feed_forward: Layer, tokens: int) -> Block:
    hidden = a.hidden_size or 0
    norm_1, norm_2 = b.norm("input_layernorm", hidden), b.norm("pre_mlp_layernorm", hidden)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        x = ops.resized(m, norm(m, x, norm_1, hidden), m.tokens * hidden)
        x = ops.resized(m, attention(m, x), tokens * hidden)
        x = ops.add(m, x, residual)
        residual = x
        x = feed_forward(m, norm(m, x, norm_2, hidden))
        return ops.add(m, x, residual)

    return block


def _grouped(b: Builder, a: Architecture) -> Callable[[Machine, Tensor], Tensor]:
    """Self-attention: one fused projection, the core, the output projection; heads are split over the tensor ranks."""
    hidden, split = a.hidden_size or 0, b.setup.sharding.tensor
    heads = (a.heads or 1) // split
    head_dim = a.head_dim or hidden // (a.heads or 1)
    kv_heads = max(1, (a.kv_heads or a.heads or 1) // split)
    q, kv = heads * head_dim, kv_heads * head_dim
    gated = bool(a.config.get("attn_output_gate"))
    qkv = linear_of(b, "linear_qkv", hidden, (2 if gated else 1) * q + 2 * kv)
    proj = linear_of(b, "linear_proj", q, hidden)

    def attention(m: Machine, x: Tensor) -> Tensor:
        full = m.tokens
        query, key, value, *gate = ops.split(m, qkv(m, x), (full * q, full * kv, full * kv, *([full * q] if gated else ())))
        del x
        query, key = ops.shift(m, query), ops.shift(m, key)
        value = ops.copy(m, value)
        shape = Shape(m.batch, m.sequence, m.sequence, heads, kv_heads, head_dim, head_dim)
        mixed = _core(m, query, key, value, shape)
        del query, key, value
        if gate:  # `attention_output_gate`: times the gate's sigmoid, compiled
            mixed = ops.mul(m, mixed, gate[0])
        return proj(m, mixed)

    return attention


def _core(m: Machine, query: Tensor, key: Tensor, value: Tensor, shape: Shape) -> Tensor:
    """The attention kernel, among the ranks of a context-parallel group if there is one."""
    return exchanged(m, query, key, value, shape, flash) if m.exchange else flash(m, query, key, value, shape)


def _latent(b: Builder, a: Architecture) -> Callable[[Machine, Tensor], Tensor]:
    """Multi-latent attention (`core/transformer/multi_latent_attention.py`): queries and keys are put together from their parts with
    and without rotation, and copied; values are a view of the up-projection."""
    hidden, split = a.hidden_size or 0, b.setup.sharding.tensor
    heads = (a.heads or 1) // split
    plain, turned = number(a, "qk_nope_head_dim", "qk_head_dim"), number(a, "qk_rope_head_dim", "qk_pos_emb_head_dim")
    value_dim, rank, q_rank = number(a, "v_head_dim"), number(a, "kv_lora_rank"), number(a, "q_lora_rank")
    q = heads * (plain + turned)
    if q_rank:
        q_down, q_norm = linear_of(b, "linear_q_down_proj", hidden, q_rank), b.norm("q_layernorm", q_rank)
    q_up = linear_of(b, "linear_q_up_proj" if q_rank else "linear_q_proj", q_rank or hidden, q)
    kv_down, kv_norm = linear_of(b, "linear_kv_down_proj", hidden, rank + turned), b.norm("kv_layernorm", rank)
    kv_up = linear_of(b, "linear_kv_up_proj", rank, heads * (plain + value_dim))
    proj = linear_of(b, "linear_proj", heads * value_dim, hidden)

    def attention(m: Machine, x: Tensor) -> Tensor:
        full = m.tokens
        query = q_up(m, norm(m, q_down(m, x), q_norm, q_rank) if q_rank else x)
        query = ops.shift(m, query)
        latent, position = ops.split(m, kv_down(m, x), (full * rank, full * turned))
        del x
        key, value = ops.split(m, kv_up(m, norm(m, latent, kv_norm, rank)), (full * heads * plain, full * heads * value_dim))
        key = ops.resized(m, ops.concat(m, (key, position)), full * q)
        del latent, position
        shape = Shape(m.batch, m.sequence, m.sequence, heads, heads, plain + turned, value_dim)
        mixed = _core(m, query, key, value, shape)
        del query, key, value
        return proj(m, mixed)

    return attention


def _dense(b: Builder, a: Architecture) -> Callable[[Machine, Tensor], Tensor]:
    """With gates the first linear has both halves; without (GPT-3) the activation keeps as much as it makes (`fused_bias_gelu.py`)."""
    hidden = a.hidden_size or 0
    inner = (a.intermediate_size or 0) // b.setup.sharding.tensor
    if not inner:
        raise _unknown(a)
    gated = a.activation not in UNGATED
    fc1 = linear_of(b, "linear_fc1", hidden, 2 * inner if gated else inner)
    fc2 = linear_of(b, "linear_fc2", inner, hidden)

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        back = x.numel
        up = fc1(m, ops.resized(m, x, m.tokens * hidden))
        return ops.resized(m, fc2(m, swiglu(m, up) if gated else activated(m, up)), back)

    return feed_forward
