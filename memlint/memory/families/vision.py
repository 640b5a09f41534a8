"""Vision transformers: the towers of image classifiers, dual encoders and vision-language models.

Read in transformers 5.24 `models/<type>/modeling_<type>.py`: ViT, DeiT, DINOv2, BEiT, CLIP, SigLIP, Pixtral, InternVL and the Qwen-VL line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory import convolutions, ops
from memlint.memory.attention import Shape, attend
from memlint.memory.build import Builder
from memlint.memory.checkpointing import checkpointed_alone
from memlint.memory.families import parts
from memlint.memory.families.grid import grid_of, sampled, side_of
from memlint.memory.families.model import Block
from memlint.memory.families.pooling import pooling_head
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import FP32, INT64, Anchor, Tensor
from memlint.typed import Any, NamedTuple

Norm = Callable[[Machine, Tensor], Tensor]


class Style(NamedTuple):
    """How a vision transformer is put together."""

    names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2")
    """Projections of queries, keys and values (one name: fused), output, then the MLP (three names: gated)."""
    tokens: int = 1
    """Learned tokens in front of the patches."""
    rms: bool = False
    qkv_bias: bool = True
    key_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    patch_bias: bool = True
    positions: str = "learned"
    """learned (a parameter), fixed (numbers that each step brings to the device), table (an embedding),
    each (an embedding, looked up for each image), rotary, taps (an embedding read
    at four places for each patch, and rotary)."""
    scales: bool = False
    """Each branch is multiplied by a learned vector (LayerScale)."""
    norm_before: bool = False
    norm_after: bool = True
    """A normalisation behind the last block."""
    frames: int = 1
    """Frames that one patch spans."""
    pools: str = ""
    """How one vector is made of an image: first (the first position, normalised: CLIP), attention (SigLIP), or not at all."""
    scales_left: bool = False
    """The scale is the left operand, whose gradient is summed up first."""
    mask_token: bool = False
    float32_softmax: bool = True
    """Eager attention asks for a float32 softmax."""
    names_attention: bool = False
    """The block is the older one of two modules behind each other, with names that hold the attention's input and result to its end."""
    separate: bool = False
    """All patches stand in one row; each image (or window) attends in a call of its own, and the results are joined."""
    named_input: bool = True
    """Its class names an input embedding, whose result can be made to need a gradient (`enable_input_require_grads`)."""
    together: bool = False
    """All patches of all images stand in one row, and a mask lets each image see itself."""


_GLM = Style(
    ("qkv", "proj", "gate_proj", "up_proj", "down_proj"),
    0,
    rms=True,
    out_bias=False,
    mlp_bias=False,
    positions="sampled",
    norm_before=True,
    frames=2,
    separate=True,
    named_input=False,
)
_QWEN = Style(
    ("qkv", "proj", "linear_fc1", "linear_fc2"), 0, positions="taps", norm_after=False, frames=2, separate=True, named_input=False
)

STYLES = {
    "vit": Style(),
    "deit": Style(tokens=2),
    "audio-spectrogram-transformer": Style(tokens=2),
    "videomae": Style(("query", "key", "value", "attention.output.dense", "intermediate.dense", "output.dense"), 0, key_bias=False,
                      positions="fixed", float32_softmax=False, names_attention=True),
    "dinov2": Style(scales=True, mask_token=True, float32_softmax=False),
    "beit": Style(scales_left=True, scales=True, key_bias=False),
    "clip_vision_model": Style(("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"), patch_bias=False, positions="table",
                               norm_before=True, pools="first"),
    "siglip_vision_model": Style(("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"), 0, positions="table", pools="attention"),
    "idefics3_vision": Style(("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"), 0, positions="each"),
    "idefics2_vision": Style(("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"), 0, positions="each"),
    "smolvlm_vision": Style(("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"), 0, positions="each"),
    "pixtral": Style(("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), 0, rms=True, qkv_bias=False,
                     out_bias=False, mlp_bias=False, patch_bias=False, positions="rotary", norm_before=True, norm_after=False,
                     together=True),
    "glm4v_vision": _GLM, "glm4v_moe_vision": _GLM,
    "internvl_vision": Style(("q_proj", "k_proj", "v_proj", "projection_layer", "fc1", "fc2"), scales=True, float32_softmax=False),
    "qwen2_vl": Style(("qkv", "proj", "fc1", "fc2"), 0, positions="rotary", patch_bias=False, norm_after=False, frames=2,
                      separate=True),
    "qwen2_5_vl": Style(("qkv", "proj", "gate_proj", "up_proj", "down_proj"), 0, rms=True, positions="rotary", patch_bias=False,
                        norm_after=False, frames=2, separate=True),
    "qwen3_vl": _QWEN, "qwen3_vl_moe": _QWEN, "qwen3_5": _QWEN, "qwen3_5_moe": _QWEN, "qwen3_5_vision": _QWEN,
}  # fmt: skip


TURNED = ("rotary", "taps", "sampled")
"""Kinds of positions with a rotation of queries and keys."""


class Tower:
    """A built vision transformer. `images` and `patches` (tokens of one image) hold for the current step."""

    def __init__(
        self,
        hidden: int,
        embed: Callable[[Machine], Tensor],
        blocks: list[Block],
        finish: Norm,
        images: int = 1,
        patches: int = 0,
    ) -> None:
        self.hidden = hidden
        self.embed = embed
        self.blocks = blocks
        self.finish = finish
        self.images = images
        self.patches = patches
        self.window: int = 0
        """Patches of a window, where most blocks attend within windows only (Qwen2.5-VL)."""
        self.causal: bool = False
        self.masked: bool = False
        """Its attention looks at the batch's padding mask."""
        self.pooled: Norm = lambda m, x: x
        """One vector for each image, from the last states."""
        self.tables: list[tuple[Tensor, Tensor]] = []
        self.deep: dict[int, Norm] = {}
        """What makes features of the states behind some blocks (Qwen3-VL)."""
        self.mask: Tensor | None = None
        """What lets each of several images in one row see itself."""
        self.pixels: Tensor | None = None
        self.across: bool = False
        """Its states lie channel by channel, as the convolution leaves them: positions are added to its result, and blocks to that."""
        self.named: bool = True
        """The model holds the tower's output to the end of its forward pass."""
        self.named_inputs: bool = False
        """Its blocks are called with keyword arguments only, which checkpointing does not look at."""
        self.gathers: bool = False
        """The pieces of all images are first put together in one tensor, which the model's local variable holds."""
        self.gathered: Tensor | None = None

    @property
    def rows(self) -> int:
        """Tokens of all images."""
        return self.images * self.patches


def tower_of(
    b: Builder, config: Mapping[str, Any], kind: str, image_size: int, layers: int = 0, with_layers: bool = False
) -> Tower:
    """Build the tower of a vision configuration; its blocks belong to no layer of the text model unless `with_layers`."""
    style = STYLES[kind]
    hidden = int(config.get("embed_dim" if kind == "qwen2_vl" else "hidden_size") or config.get("embed_dim") or 768)
    patch = side_of(config, "patch_size", 16)
    own_size = side_of(config, "image_size", 224)
    own, seen_grid = (grid_of(config, side, style.frames) for side in (own_size, image_size or own_size))
    patches = seen_grid.patches + style.tokens
    depth = layers or int(config.get("depth") or config.get("num_hidden_layers") or 12)
    since = len(b.parameters)
    tokens = [b.parameter(name, "token", (hidden,)) for name in ("cls_token", "distillation_token")[: style.tokens]]
    if style.mask_token and config.get("use_mask_token", True):
        b.parameter("mask_token", "token", (hidden,))
    if kind == "internvl_vision" and config.get("use_mask_token"):
        b.parameter("mask_token", "token", (hidden,))
    weight = b.parameter("patch_embedding", "conv", (hidden, own.patch))
    bias = b.vector("patch_embedding.bias", hidden) if style.patch_bias else None
    grid = int(config.get("num_position_embeddings") or own.patches + style.tokens)
    absolute = config.get("use_absolute_position_embeddings", kind != "beit")
    learned = style.positions not in ("rotary", "fixed") and absolute
    places = b.parameter("position_embedding", "embedding", (grid, hidden)) if learned else None
    before = norm_of(b, style, "pre_layrnorm", hidden) if style.norm_before else None
    tower = Tower(hidden, lambda m: m.new(0, 2), [], lambda m, x: x, 1, patches)
    tower.across = style.positions == "table" and not style.tokens and not style.norm_before
    if config.get("window_size") and config.get("fullatt_block_indexes"):
        tower.window = (int(config["window_size"]) // patch) ** 2
    for index in range(depth):
        if with_layers:
            b.enter_layer(index)
        tower.blocks.append(block_of(b, config, style, tower))
    again = checkpointed_alone(b.setup, b.parameters[since:])
    if with_layers:
        b.enter_layer(-1)
    after = norm_of(b, style, "post_layernorm", hidden) if style.norm_after and not config.get("use_mean_pooling") else None
    if style.pools == "attention" and config.get("vision_use_head", True):
        tower.pooled = pooling_head(b, config, tower)
    dropout = float(config.get("hidden_dropout_prob") or 0.0)
    heads = int(config.get("num_attention_heads") or config.get("num_heads") or 12)

    def embed(m: Machine) -> Tensor:
        count = tower.images * (tower.patches - style.tokens)
        # The batch keeps the images as long as the step lasts.
        tower.pixels = m.new(tower.images * seen_grid.whole, b.setup.weight_itemsize)
        seen = ops.copy(m, tower.pixels) if tower.gathers else tower.pixels
        x = convolutions.convolution(m, seen, weight, bias, count * hidden)
        tower.gathered = seen
        del seen
        if m.input_grads and x.node is None and style.named_input and style.positions != "each":
            x = m.tape.leaf(x)
        if tokens:
            x = ops.concat(m, (*(spread_token(m, token, tower.images * hidden) for token in tokens), x))
        if style.positions == "each" and places is not None:
            x = ops.add(m, x, ops.embedding(m, places, hidden, count, m.new(count, INT64), inputs=False))
            x = m.tape.leaf(x) if m.input_grads and x.node is None else x
        elif style.positions == "taps" and places is not None:
            taps, weights = m.new(count * 4, INT64), m.new(count * 4, FP32)
            read = ops.mul(m, ops.embedding(m, places, hidden, count * 4, taps, inputs=False), weights)
            x = ops.add(m, x, ops.cast(m, ops.sum_last(m, read, count * hidden), x.itemsize))
            del taps, weights, read
        elif style.positions == "sampled" and places is not None and before is not None:
            x = before(m, x)
            x = ops.add(m, x, sampled(m, places, count, hidden))
        elif places is not None:
            x = ops.add(m, x, places)
        elif style.positions == "fixed":
            x = ops.add(m, x, m.new(tower.patches * hidden, x.itemsize))
        if style.positions in TURNED:
            size = tower.rows * hidden // heads
            tower.tables[:] = [(m.new(size, FP32), m.new(size, FP32))]
        if tower.window:  # rows are put in the order of windows, their tables as well
            order = m.new(tower.rows // 4, INT64)
            x = ops.gather(m, x, order, x.numel)
            tower.tables[:] = [
                (ops.gather(m, cos, order, cos.numel), ops.gather(m, sin, order, sin.numel)) for cos, sin in tower.tables
            ]
        x = ops.dropout(m, x, dropout)
        x = before(m, x) if before is not None and style.positions != "sampled" else x
        if not style.named_input and x.node is None and again:
            x = m.tape.leaf(x, Anchor)
        if style.together:
            tower.mask = m.new(tower.rows * tower.rows, x.itemsize)
        return x

    def first(m: Machine, x: Tensor) -> Tensor:
        assert after is not None
        return after(m, ops.narrow(m, x, tower.images * hidden))

    tower.embed = embed
    if style.pools == "first":
        tower.pooled = first
    elif after is not None:
        tower.finish = after
    return tower


def spread_token(m: Machine, token: Tensor, numel: int) -> Tensor:
    """A learned token for every image: an expanded view."""
    few, itemsize = token.numel, token.itemsize
    view = Tensor(token.storage, numel, itemsize)
    return m.tape.record(view, (token,), lambda g: (m.new(few, itemsize),))


def norm_of(b: Builder, style: Style, name: str, width: int) -> Norm:
    weight = b.norm(name, width)
    if style.rms:
        return lambda m, x: parts.rms_norm(m, x, weight, width)
    bias = b.vector(f"{name}.bias", width)
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


def block_of(b: Builder, config: Mapping[str, Any], style: Style, tower: Tower, gated: bool = False) -> Block:
    """Pre-norm attention and MLP; `gated`: each branch is scaled by the tanh of a learned number."""
    hidden = tower.hidden
    heads = int(config.get("num_attention_heads") or config.get("num_heads") or 12)
    inner = int(config.get("intermediate_size") or hidden * float(config.get("mlp_ratio") or 4))
    if style.mask_token or ("embed_dim" in config and "mlp_ratio" in config and "depth" in config):
        inner = int(hidden * float(config["mlp_ratio"]))
    act = str(config.get("hidden_act") or "gelu")
    fused = len(style.names) == 4 or style.names[0] == "qkv"
    qkv_names = style.names[:1] if fused else style.names[:3]
    out_name, *mlp_names = style.names[len(qkv_names) :]
    qkv_bias = style.qkv_bias and bool(config.get("qkv_bias", config.get("attention_bias", True)))
    drop = float(config.get("attention_dropout") or config.get("attention_probs_dropout_prob") or 0.0)
    dropout = float(config.get("hidden_dropout_prob") or 0.0)
    path = float(config.get("drop_path_rate") or 0.0) if tower.blocks else 0.0  # rises from none at the first block
    windowed = tower.window > 0 and len(tower.blocks) not in (config.get("fullatt_block_indexes") or ())
    first = norm_of(b, style, "layer_norm1", hidden)
    b.parent = "attn"
    if fused:
        qkv = [b.linear(qkv_names[0], hidden, 3 * hidden, qkv_bias)]
    else:
        qkv = [b.linear(n, hidden, hidden, qkv_bias and (style.key_bias or n not in ("k_proj", "key"))) for n in qkv_names]
    out = b.linear(out_name, hidden, hidden, style.out_bias)
    bias = _relative_bias(b, config, heads, tower) if config.get("use_relative_position_bias") else None
    scales = [b.vector(f"layer_scale{i}", hidden, "scale") for i in (1, 2)] if style.scales else []
    if config.get("use_swiglu_ffn"):  # two thirds of the width, rounded up to a multiple of 8 (`Dinov2SwiGLUFFN`)
        inner, act, mlp_names = -(-int(inner * 2 / 3) // 8) * 8, "silu", ["gate_proj", "up_proj", "down_proj"]
    gates = [b.vector(f"gate{i}", 1, "scale") for i in (1, 2)] if gated else []
    second = norm_of(b, style, "layer_norm2", hidden)
    b.parent = "mlp"
    mlp = [b.linear(n, hidden, inner, style.mlp_bias) for n in mlp_names[:-1]]
    down = b.linear(mlp_names[-1], inner, hidden, style.mlp_bias)

    def attention(m: Machine, x: Tensor) -> Tensor:
        if fused:
            each = x.numel
            q, k, v = ops.split(m, apply(m, qkv[0], x), (each, each, each))
        else:
            q, k, v = (apply(m, projection, x) for projection in qkv)
        if style.positions in TURNED:
            q, k = (_turned(m, t, tower) for t in (q, k))
        head_dim = hidden // heads
        length = min(tower.window, tower.patches) if windowed else tower.rows if style.together else tower.patches
        shape = Shape(
            tower.rows // length,
            length,
            length,
            heads,
            heads,
            head_dim,
            head_dim,
            drop,
            causal=tower.causal,
            float32_softmax=style.float32_softmax,
            separate=style.separate,
        )
        kept = m.mask
        if not tower.masked:
            m.mask = None
        if bias is not None:
            m.mask = bias(m)
            q = m.tape.record(Tensor(q.storage, q.numel, q.itemsize), (q, m.mask), lambda g: (g, g))
        mixed = attend(m, q, k, v, shape, tower.mask)
        m.mask = kept
        if style.separate:
            mixed = ops.copy(m, mixed)
        return apply(m, out, mixed)

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        if len(mlp) == 2:
            return parts.gated_mlp(m, x, mlp[0], mlp[1], down, act)
        if not style.names_attention:
            return parts.mlp(m, x, mlp[0], down, act)
        states = apply(m, mlp[0], x)
        states = parts.activation(m, states, act)
        del x  # two modules, not one
        return apply(m, down, states)

    def scaled(m: Machine, x: Tensor, by: Tensor) -> Tensor:
        return ops.mul(m, by, x) if style.scales_left else ops.mul(m, x, by)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        normed = first(m, x)
        x = ops.dropout(m, attention(m, normed), dropout)
        named = (normed, x) if style.names_attention else ()
        del normed
        if scales:
            x = scaled(m, x, scales[0])
        if gates:
            x = ops.mul(m, ops.unary(m, gates[0], keeps="output"), x)
        x = residual = ops.add(m, ops.drop_path(m, x, path, tower.images), residual)
        x = feed_forward(m, second(m, x))
        x = ops.dropout(m, x, dropout)
        if scales:
            x = scaled(m, x, scales[1])
        if gates:
            x = ops.mul(m, ops.unary(m, gates[1], keeps="output"), x)
        x = ops.add(m, ops.drop_path(m, x, path, tower.images), residual)
        del named
        return x

    return block


def _relative_bias(b: Builder, config: Mapping[str, Any], heads: int, tower: Tower) -> Callable[[Machine], Tensor]:
    """BEiT: what a table holds for the distance of two patches, per head; it takes the mask's place."""
    grid = side_of(config, "image_size", 224) // side_of(config, "patch_size", 16)
    rows = (2 * grid - 1) ** 2 + 3
    table = b.parameter("relative_position_bias_table", "embedding", (rows, heads))

    def bias(m: Machine) -> Tensor:
        numel, few, size = heads * tower.patches**2, rows * heads, table.itemsize
        picked = m.new(numel, size)
        out = m.new(numel, size)
        del picked
        return m.tape.record(out, (table,), lambda g: (m.new(few, size),))

    return bias


def _turned(m: Machine, x: Tensor, tower: Tower) -> Tensor:
    """Rotary positions in float32, cast back (`apply_rotary_pos_emb_vision`)."""
    dtype = x.itemsize
    return ops.cast(m, parts.rotate(m, ops.cast(m, x, FP32), *tower.tables[-1]), dtype)
