"""Decoders of state-space mixers, alone (Mamba) or among attention layers (Falcon-H1, Jamba, Nemotron-H, Granite 4, Bamba, LFM2).

Read in transformers 5.24 `models/<type>/modeling_<type>.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families import moe, parts
from memlint.memory.families.llama import Part, Rotary, attention_of, decoder, mlp_of
from memlint.memory.families.llama_styles import Style
from memlint.memory.families.model import Model
from memlint.memory.families.state_space import dual_form, normalised_scan, selective_scan, short_convolution
from memlint.memory.linear import apply, stacked
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture

Mixer = Callable[[Builder, Architecture], Part]

MIXERS: dict[str, Mixer] = {
    "mamba": selective_scan, "falcon_mamba": selective_scan, "jamba": normalised_scan, "lfm2": short_convolution,
}  # fmt: skip
"""The mixer of the types that have none of Mamba-2's."""

STYLES = {
    "mamba": Style(rotates=False, float_residual=True, float_logits=True),
    "falcon_mamba": Style(rotates=False, float_residual=True, float_logits=True),
    "mamba2": Style(rotates=False, float_residual=True, float_logits=True),
    "nemotron_h": Style(norm="rms_promoted", rotates=False, float_logits=True),
    "jamba": Style(rotates=False),
    "falcon_h1": Style(scales_embedding=True, scales_logits=True),
    "granitemoehybrid": Style(scales_embedding=True, scales_residual=True, scales_logits=True),
    "lfm2": Style(qk_norm="head", names=("q_proj", "k_proj", "v_proj", "out_proj", "w1", "w3", "w2")),
}

LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""`hybrid_override_pattern` of Nemotron-H."""
WORDS = {"full_attention": "attention", "linear_attention": "mamba", "conv": "mamba", "hybrid": "both"}
"""What `layer_types` and `layers_block_type` call the kinds."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The decoder with `layers` blocks; all of them where they are not alike."""
    kinds = kinds_of(a, b.setup.layers)
    if layers < b.setup.layers and len(set(kinds)) > 1:
        raise NotUniform
    style = STYLES.get(a.model_type, Style())
    if a.config.get("position_embedding_type") == "nope":
        style = style._replace(rotates=False)
    if a.model_type in ("mamba", "falcon_mamba", "mamba2") and not a.config.get("residual_in_fp32", True):
        style = style._replace(float_residual=False)

    def part(b: Builder, a: Architecture, style: Style, rotary: Rotary, index: int) -> Part:
        return part_of(b, a, style, rotary, index, kinds[index])

    halves = a.model_type not in ("mamba", "falcon_mamba", "mamba2", "nemotron_h")
    model = decoder(b, a, layers, style, part, feed_forward, halves=halves)
    model.causal = not {"attention", "both"}.isdisjoint(kinds)
    return model


def kinds_of(a: Architecture, layers: int) -> list[str]:
    """Which of mamba, attention, both, mlp or moe each layer is."""
    config = a.config
    if pattern := config.get("hybrid_override_pattern"):
        kinds = [LETTERS.get(letter, "mamba") for letter in pattern]
    elif a.model_type == "falcon_h1":
        kinds = ["both"] * layers
    elif listed := config.get("layers_block_type") or config.get("layer_types"):
        kinds = [WORDS.get(kind, kind) for kind in listed]
    elif a.model_type == "jamba":
        period, offset = int(config.get("attn_layer_period") or 8), int(config.get("attn_layer_offset") or 4)
        kinds = ["attention" if index % period == offset else "mamba" for index in range(layers)]
    else:
        attending = config.get("attn_layer_indices") or ()
        kinds = ["attention" if index in attending else "mamba" for index in range(layers)]
    return kinds[:layers] + kinds[-1:] * (layers - len(kinds))


def part_of(b: Builder, a: Architecture, style: Style, rotary: Rotary, index: int, kind: str) -> Part:
    """What a layer does before its feed-forward half (Nemotron-H: instead of one)."""
    if kind == "attention":
        return attention_of(b, a, style, rotary, index)
    if kind == "mlp":
        return plain_mlp(b, a, a.intermediate_size or 0)
    if kind == "moe":
        return latent_experts(b, a)
    mixer = MIXERS.get(a.model_type, dual_form)(b, a)
    return beside(mixer, attention_of(b, a, style, rotary, index)) if kind == "both" else mixer


def beside(mixer: Part, attention: Part) -> Part:
    """Falcon-H1: both see the normalised input, each scaled before or after, and are added."""

    def part(m: Machine, x: Tensor) -> Tensor:
        mixed = ops.scale(m, mixer(m, x))
        return ops.add(m, mixed, ops.scale(m, attention(m, ops.scale(m, x))))

    return part


def feed_forward(b: Builder, a: Architecture, style: Style, index: int) -> Part:
    """The second half of a block."""
    config = a.config
    if a.model_type == "granitemoehybrid":
        return granite(b, a)
    if a.model_type == "jamba":
        period, offset = int(config.get("expert_layer_period") or 2), int(config.get("expert_layer_offset") or 1)
        if index % period == offset and int(config.get("num_experts") or 1) > 1:
            return moe.experts_of(b, a, moe.Sparse("softmax", normalises=False, adapted=False))
        return mlp_of(b, a, style, index)
    if a.model_type == "falcon_h1":
        return scaled_mlp(b, a)
    return mlp_of(b, a, style, index, inner=adjusted(a) if a.model_type == "lfm2" else 0)


def adjusted(a: Architecture) -> int:
    """LFM2's width of the feed-forward part."""
    inner, config = a.intermediate_size or 0, a.config
    if not config.get("block_auto_adjust_ff_dim", True):
        return inner
    inner = 2 * inner // 3
    factor, multiple = config.get("block_ffn_dim_multiplier"), int(config.get("block_multiple_of") or 256)
    return -(-int(float(factor) * inner) // multiple) * multiple if factor is not None else inner


def scaled_mlp(b: Builder, a: Architecture) -> Part:
    """Falcon-H1: the gate and the result are multiplied by constants."""
    b.parent = "mlp"
    hidden, inner, act = a.hidden_size or 0, a.intermediate_size or 0, a.activation or "silu"
    bias = bool(a.config.get("mlp_bias"))
    gate, up = b.linear("gate_proj", hidden, inner, bias), b.linear("up_proj", hidden, inner, bias)
    down = b.linear("down_proj", inner, hidden, bias)

    def mlp(m: Machine, x: Tensor) -> Tensor:
        wide = apply(m, up, x)
        wide = ops.mul(m, wide, parts.activation(m, ops.scale(m, apply(m, gate, x)), act))
        return ops.scale(m, apply(m, down, wide))

    return mlp


def plain_mlp(b: Builder, a: Architecture, inner: int, parent: str = "mlp") -> Part:
    """Nemotron's `down(relu(up(x)) ** 2)`."""
    b.parent = parent
    hidden, bias = a.hidden_size or 0, bool(a.config.get("mlp_bias"))
    act = str(a.config.get("mlp_hidden_act") or "relu2")
    up, down = b.linear("up_proj", hidden, inner, bias), b.linear("down_proj", inner, hidden, bias)
    return lambda m, x: parts.mlp(m, x, up, down, act)


def latent_experts(b: Builder, a: Architecture) -> Part:
    """Nemotron 3: ungated experts, in a narrower space where `moe_latent_size` says so, beside a shared one."""
    config, hidden = a.config, a.hidden_size or 0
    count, top_k = int(config.get("n_routed_experts") or 8), int(config.get("num_experts_per_tok") or 2)
    inner, latent = int(config.get("moe_intermediate_size") or 0), int(config.get("moe_latent_size") or 0)
    sparse = moe.Sparse("sigmoid", True, adapted=False)
    act, bias = str(config.get("mlp_hidden_act") or "relu2"), bool(config.get("mlp_bias"))
    b.parent = "experts"
    up = b.stack("up_proj", count, latent or hidden, inner, ())
    down = b.stack("down_proj", count, inner, latent or hidden, ())
    b.parent = "mixer"
    router = b.stack("gate", 1, hidden, count, (), "router")
    shared = plain_mlp(b, a, int(config.get("moe_shared_expert_intermediate_size") or inner), "shared_expert")
    narrows = (
        (b.linear("fc1_latent_proj", hidden, latent, bias), b.linear("fc2_latent_proj", latent, hidden, bias)) if latent else None
    )

    def mixer(m: Machine, x: Tensor) -> Tensor:
        residual = x
        weights, chosen = moe.route(
            m, sparse, x, stacked(m, router), None, count, top_k, bool(config.get("norm_topk_prob", True))
        )
        x = apply(m, narrows[0], x) if narrows else x
        x = moe.dispatch(m, x, weights, chosen, up, down, top_k, lambda m, t: parts.activation(m, t, act))
        x = apply(m, narrows[1], x) if narrows else x
        return ops.add(m, x, shared(m, residual))

    return mixer


def granite(b: Builder, a: Architecture) -> Part:
    """Granite 4: a fused gated MLP, and experts beside it where there are some."""
    config, hidden, act = a.config, a.hidden_size or 0, a.activation or "silu"
    experts = moe.experts_of(b, a, moe.Sparse("late_softmax", adapted=False)) if config.get("num_local_experts") else None
    b.parent = "shared_mlp"
    inner = int(config.get("shared_intermediate_size") or a.intermediate_size or 0)
    both, down = b.linear("input_linear", hidden, 2 * inner), b.linear("output_linear", inner, hidden)

    def shared(m: Machine, x: Tensor) -> Tensor:
        return apply(m, down, moe.glu(m, apply(m, both, x), act))

    def part(m: Machine, x: Tensor) -> Tensor:
        return ops.add(m, experts(m, x), shared(m, x)) if experts is not None else shared(m, x)

    return part
