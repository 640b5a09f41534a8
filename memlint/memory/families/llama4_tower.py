"""Llama 4's vision tower and the adapter behind it (transformers 5.24 `models/llama4/modeling_llama4.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.families import parts
from memlint.memory.families.model import Block
from memlint.memory.families.vision import Norm, Tower, spread_token
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, Tensor
from memlint.typed import Any


def vision_tower(b: Builder, config: Mapping[str, Any], image_size: int) -> Tower:
    """Unfolded patches behind a linear, a learned token behind them; complex rotary positions; patches joined by fours."""
    hidden, patch = int(config.get("hidden_size") or 768), int(config.get("patch_size") or 14)
    side = image_size or int(config.get("image_size") or 448)
    heads = int(config.get("num_attention_heads") or 16)
    patches = (side // patch) ** 2 + 1
    pixels = int(config.get("num_channels") or 3) * patch * patch
    token = b.parameter("class_embedding", "token", (hidden,))
    places = b.parameter("positional_embedding_vlm", "embedding", (patches, hidden))
    project = b.linear("linear", pixels, hidden)
    before = _norm(b, "layernorm_pre", hidden)
    after = _norm(b, "layernorm_post", hidden)
    turns = b.buffer(patches * hidden // heads, FP32)
    tower = Tower(hidden, lambda m: m.new(0, 2), [], lambda m, x: x, 1, patches)
    for _ in range(int(config.get("num_hidden_layers") or 34)):
        tower.blocks.append(_block(b, config, tower, turns))
    adapt = _adapter(b, config, patches - 1)
    tower.named_inputs = True
    tower.hidden = int(config.get("vision_output_dim") or 7680)

    def embed(m: Machine) -> Tensor:
        count = tower.images * (patches - 1)
        tower.pixels = m.new(tower.images * pixels * (patches - 1), b.setup.weight_itemsize)
        columns = ops.autocast(m, m.new(count * pixels, b.setup.weight_itemsize))
        x = apply(m, project, ops.copy(m, columns))
        del columns
        if m.input_grads and x.node is None:
            x = m.tape.leaf(x)
        x = ops.concat(m, (x, spread_token(m, token, tower.images * hidden)))
        x = ops.add(m, x, places)
        return before(m, x)

    def finish(m: Machine, x: Tensor) -> Tensor:
        return adapt(m, ops.narrow(m, after(m, x), tower.images * (patches - 1) * hidden))

    tower.embed, tower.finish = embed, finish
    return tower


def _norm(b: Builder, name: str, width: int) -> Norm:
    weight, bias = b.norm(name, width), b.vector(f"{name}.bias", width)
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


def _adapter(b: Builder, config: Mapping[str, Any], patches: int) -> Callable[[Machine, Tensor], Tensor]:
    """`Llama4VisionPixelShuffleMLP`: neighbours put side by side in two steps, then two linears."""
    wide, inner = int(config.get("intermediate_size") or 5632), int(config.get("projector_input_dim") or 4096)
    out = int(config.get("projector_output_dim") or 4096)
    dropout = float(config.get("projector_dropout") or 0.0)
    up, down = b.linear("fc1", wide, inner), b.linear("fc2", out, out)

    def adapt(m: Machine, x: Tensor) -> Tensor:
        x = ops.copy(m, ops.copy(m, x))
        x = ops.unary(m, apply(m, up, x))
        return ops.unary(m, apply(m, down, ops.dropout(m, x, dropout)))

    return adapt


def _block(b: Builder, config: Mapping[str, Any], tower: Tower, turns: Tensor) -> Block:
    hidden, heads = tower.hidden, int(config.get("num_attention_heads") or 16)
    head_dim, inner = hidden // heads, int(config.get("intermediate_size") or 5632)
    dropout = float(config.get("attention_dropout") or 0.0)
    b.parent = "attn"
    q_proj, k_proj, v_proj, out = (b.linear(n, hidden, hidden, bias=True) for n in ("q_proj", "k_proj", "v_proj", "o_proj"))
    b.parent = "mlp"
    up, down = b.linear("fc1", hidden, inner, bias=True), b.linear("fc2", inner, hidden, bias=True)
    first, second = _norm(b, "input_layernorm", hidden), _norm(b, "post_attention_layernorm", hidden)

    def turned(m: Machine, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """`vision_apply_rotary_emb`: products of complex numbers in float32."""
        wide_q, wide_k = ops.cast(m, q, FP32), ops.cast(m, k, FP32)
        turned_q, turned_k = ops.mul(m, wide_q, turns), ops.mul(m, wide_k, turns)
        return ops.cast(m, turned_q, q.itemsize), ops.cast(m, turned_k, k.itemsize)

    def attention(m: Machine, x: Tensor) -> Tensor:
        q, k, v = apply(m, q_proj, x), apply(m, k_proj, x), apply(m, v_proj, x)
        q, k = turned(m, q, k)
        shape = Shape(
            tower.images,
            tower.patches,
            tower.patches,
            heads,
            heads,
            head_dim,
            head_dim,
            dropout,
            causal=False,
            float32_softmax=False,
        )
        kept, m.mask = m.mask, None
        mixed = attend(m, q, k, v, shape)
        m.mask = kept
        return apply(m, out, mixed)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        x = first(m, x)
        x = attention(m, x)
        x = residual = ops.add(m, residual, x)
        x = second(m, x)
        x = parts.mlp(m, x, up, down, "gelu")
        return ops.add(m, residual, x)

    return block
