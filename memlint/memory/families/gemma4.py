"""Gemma 4's text decoder: two kinds of attention with their own head sizes, keys and values shared by the last layers, an input per
layer, and experts beside the MLP.

Read in transformers 5.24 `models/gemma4/modeling_gemma4.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from memlint.memory import ops
from memlint.memory.attention import Shape, attend
from memlint.memory.autograd import kept_for
from memlint.memory.build import Builder
from memlint.memory.families import moe, parts
from memlint.memory.families.llama import LANGUAGE, is_windowed, windowed
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.tensor import BYTE, FP32, INT64, Grads, Parameter, Storage, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture

Norm = Callable[[Machine, Tensor], Tensor]


@dataclass(slots=True)
class Step:
    """What layers of one step hand to each other."""

    tables: dict[bool, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """By windowed or not: cos and sin."""
    kept: dict[bool, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Keys and values of the last layer of each kind that has its own; later layers use them again."""
    graphs: dict[bool, list[Storage]] = field(default_factory=dict)
    """What the graph below recomputed keys and values keeps: nothing runs through it, so it lives as long as they do."""

    looked_up: Tensor | None = None
    """What the table of the layers' own inputs says of each token."""
    policy: tuple[dict[bool, tuple[Tensor, Tensor]], dict[bool, list[Storage]]] | None = None
    """During a reference's pass: both of the policy's, which its recomputation will look at."""

    def begin(self, m: Machine) -> None:
        """A forward pass starts."""
        self.policy = None if m.tape.enabled else (self.kept, self.graphs)
        self.kept, self.graphs = {}, {}

    def passed(self, m: Machine, x: Tensor) -> Tensor:
        """The first layer's input, at which backward has passed all layers."""
        return m.tape.record(Tensor(x.storage, x.numel, x.itemsize), (x,), _through(self))

    def end(self, b: Builder) -> None:
        """The layers have run."""
        if self.policy is not None:
            self.kept, self.graphs = self.policy
            self.policy = None
        elif b.setup.checkpointing == "none":  # a checkpointed block's arguments hold them
            self.drop()

    def drop(self) -> None:
        """The layers' arguments are gone."""
        self.kept.clear()
        self.graphs.clear()


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The whole decoder with `layers` blocks."""
    total = b.setup.layers
    if layers < total:
        raise NotUniform
    hidden, config = a.hidden_size or 0, a.config
    extra = int(config.get("hidden_size_per_layer_input") or 0)
    b.enter_layer(-1)
    table = b.embedding("embed_tokens", b.setup.vocabulary, hidden)
    step = Step()
    if extra:
        rows = int(config.get("vocab_size_per_layer_input") or b.setup.vocabulary)
        per_layer = b.embedding("embed_tokens_per_layer", rows, b.setup.depth * extra)
        project = b.linear("per_layer_model_projection", hidden, b.setup.depth * extra)
        project_norm = norm_of(b, "per_layer_projection_norm", extra)
    # Tokens of an image see one another where a window is: the mask is each sample's own, whatever the length.
    bidirectional = config.get("use_bidirectional_attention") == "vision" and b.setup.media.images > 0
    window = windowed(b, a, layers) or (bidirectional and any(is_windowed(a, index) for index in range(total)))

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        step.begin(m)
        ids = ops.token_ids(m, m.tokens)
        x = ops.embedding(m, table, hidden, m.tokens, ids, True)
        m.shared = []
        if window:
            rows = m.batch if m.mask is not None or bidirectional else 1
            m.shared.append(m.new(rows * m.sequence * m.sequence, m.mask.itemsize if m.mask is not None else BYTE))
        if window and all(is_windowed(a, index) for index in range(total)) and m.mask is not None:  # no block reads it
            m.embedded, m.mask = [m.mask], None
        if extra:
            step.looked_up = ops.embedding(m, per_layer, b.setup.depth * extra, m.tokens, ids, True, inputs=False)
        return x

    def enter(m: Machine, x: Tensor) -> Tensor:
        own, step.looked_up = step.looked_up, None
        if own is not None:
            projected = project_norm(m, ops.scale(m, apply(m, project, x)))
            m.shared.append(ops.scale(m, ops.add(m, projected, own)))  # the inputs of all layers, in one tensor
            del own, projected
        for sliding in (True, False):
            step.tables[sliding] = parts.rotary_tables(m, _head_dim(a, sliding), x.itemsize)
        return step.passed(m, x)

    blocks: list[Block] = []
    for index in range(layers):
        b.enter_layer(index)
        blocks.append(_block(b, a, index, total, extra, window, step))
    b.enter_layer(-1)
    final = norm_of(b, "norm", hidden)

    def finish(m: Machine, x: Tensor) -> Tensor:
        m.shared = []
        step.end(b)
        return final(m, x)

    return headed(b, a, Stage(embed, blocks, finish, {0: enter}), table)


def headed(b: Builder, a: Architecture, stage: Stage, table: Parameter) -> Model:
    """The decoder with its head: logits squashed by tanh, or classes."""
    hidden, config = a.hidden_size or 0, a.config
    language = b.setup.objective in LANGUAGE
    classes = b.setup.vocabulary if language else b.setup.num_labels
    head_linear = b.linear("lm_head" if language else "score", hidden, classes, tied=table if b.setup.tied and language else None)
    capped = bool(config.get("final_logit_softcapping")) and language

    def head(m: Machine, x: Tensor) -> Tensor:
        logits = apply(m, head_linear, x)
        return ops.scale(m, ops.unary(m, ops.scale(m, logits), keeps="output")) if capped else logits

    return Model([stage], head, head_linear, hidden, classes, reads_all=True)


def _through(step: Step) -> Callable[[Tensor], Grads]:
    def rule(g: Tensor) -> Grads:
        step.drop()
        return (g,)

    return rule


def norm_of(b: Builder, name: str, width: int, scaled: bool = True) -> Norm:
    """`Gemma4RMSNorm`: float32 throughout, `pow(-0.5)` of the mean square, cast last."""
    weight = b.norm(name, width) if scaled else None
    return lambda m, x: _normed(m, x, weight, width)


def _normed(m: Machine, x: Tensor, weight: Parameter | None, width: int) -> Tensor:
    if "rms_norm" in m.kernels and weight is not None:
        return parts.fused_norm(m, x, weight, width)
    wide = ops.cast(m, x, FP32)
    mean = ops.shift(m, ops.mean_last(m, ops.power(m, wide), width))
    out = ops.mul(m, wide, ops.power(m, mean))
    del wide
    if weight is not None:
        out = ops.mul(m, out, ops.cast(m, weight, FP32))
    return ops.cast(m, out, x.itemsize)


def _head_dim(a: Architecture, sliding: bool) -> int:
    own = a.head_dim or 256
    return own if sliding else int(a.config.get("global_head_dim") or own)


def _block(b: Builder, a: Architecture, index: int, total: int, extra: int, window: bool, step: Step) -> Block:
    config, hidden = a.config, a.hidden_size or 0
    shares = index >= total - int(config.get("num_kv_shared_layers") or 0)
    attention = attention_of(b, a, index, total, shares, window, step)
    b.parent = "mlp"
    inner = (a.intermediate_size or 0) * (2 if shares and config.get("use_double_wide_mlp") else 1)
    gate, up, down = (
        b.linear("gate_proj", hidden, inner),
        b.linear("up_proj", hidden, inner),
        b.linear("down_proj", inner, hidden),
    )
    names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    before, after, before_mlp, after_mlp = (norm_of(b, name, hidden) for name in names)
    scalar = b.buffer(1, b.setup.weight_itemsize)
    act = a.activation or "gelu"
    experts = _experts(b, a) if config.get("enable_moe_block") else None
    if extra:
        gate_in, back = b.linear("per_layer_input_gate", hidden, extra), b.linear("per_layer_projection", extra, hidden)
        last_norm = norm_of(b, "post_per_layer_input_norm", hidden)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        x = ops.add(m, x, after(m, attention(m, before(m, x))))
        residual = x
        x = parts.gated_mlp(m, before_mlp(m, x), gate, up, down, act)
        if experts is not None:
            x = experts(m, x, residual)
        x = ops.add(m, residual, after_mlp(m, x))
        if extra:
            residual = x
            own = ops.narrow(m, m.shared[-1], m.tokens * extra)
            x = ops.mul(m, parts.activation(m, apply(m, gate_in, x), act), own)
            x = ops.add(m, residual, last_norm(m, apply(m, back, x)))
        numel, itemsize = x.numel, x.itemsize
        view = Tensor(x.storage, numel, itemsize)  # `hidden_states *= self.layer_scalar`
        return m.tape.record(view, (x,), lambda g: (m.new(numel, itemsize),), (scalar.storage,))

    return block


def attention_of(
    b: Builder, a: Architecture, index: int, total: int, shares: bool, window: bool, step: Step, sharing: bool = True
) -> Callable[[Machine, Tensor], Tensor]:
    b.parent = "attn"
    config, hidden, heads = a.config, a.hidden_size or 0, a.heads or 1
    sliding = is_windowed(a, index)
    head_dim, bias = _head_dim(a, sliding), bool(config.get("attention_bias"))
    same = bool(config.get("attention_k_eq_v")) and not sliding
    kv_heads = a.kv_heads or heads
    if same:
        kv_heads = int(config.get("num_global_key_value_heads") or kv_heads)
    width, kv_width = heads * head_dim, kv_heads * head_dim
    first_shared = total - int(config.get("num_kv_shared_layers") or 0)
    kinds = [is_windowed(a, i) for i in range(first_shared)]
    stores = sharing and not shares and index == len(kinds) - 1 - kinds[::-1].index(sliding)
    q_proj, out = b.linear("q_proj", hidden, width, bias), b.linear("o_proj", width, hidden, bias)
    q_norm = norm_of(b, "q_norm", head_dim)
    k_proj = None if shares else b.linear("k_proj", hidden, kv_width, bias)
    v_proj = None if shares or same else b.linear("v_proj", hidden, kv_width, bias)
    k_norm = None if shares else norm_of(b, "k_norm", head_dim)
    v_norm = norm_of(b, "v_norm", head_dim, scaled=False)
    dropout = float(a.dropouts.get("attention_dropout", 0.0))

    def attention(m: Machine, x: Tensor) -> Tensor:
        cos, sin = step.tables[sliding]
        q = parts.rotate(m, q_norm(m, apply(m, q_proj, x)), cos, sin)
        if k_proj is None or k_norm is None:
            if sliding not in step.kept:
                raise CannotEstimate("the layers of this model share keys and values, which a pipeline's stages do not exchange")
            k, v = step.kept[sliding]
        else:
            k = apply(m, k_proj, x)
            v = apply(m, v_proj, x) if v_proj is not None else k
            k, v = parts.rotate(m, k_norm(m, k), cos, sin), v_norm(m, v)
        if stores:
            step.kept[sliding] = (k, v)
            if m.tape.recomputes:
                step.graphs[sliding] = kept_for(k) + kept_for(v)
                step.kept[sliding] = (Tensor(k.storage, k.numel, k.itemsize), Tensor(v.storage, v.numel, v.itemsize))
        shape = Shape(m.batch, m.sequence, m.sequence, heads, kv_heads, head_dim, head_dim, dropout)
        kept = m.mask
        if sliding and window:
            m.mask = m.shared[0]
        mixed = attend(m, q, k, v, shape)
        m.mask = kept
        return apply(m, out, mixed)

    return attention


def _experts(b: Builder, a: Architecture) -> Callable[[Machine, Tensor, Tensor], Tensor]:
    """Experts on the states in front of the MLP; both results are normalised and added."""
    config, hidden = a.config, a.hidden_size or 0
    count, top_k = int(config.get("num_experts") or 1), int(config.get("top_k_experts") or 1)
    inner = int(config.get("moe_intermediate_size") or 0)
    act = a.activation or "gelu"
    router_norm = norm_of(b, "router.norm", hidden, scaled=False)
    proj = b.linear("proj", hidden, count)
    scale, each = b.vector("scale", hidden, "scale"), b.vector("per_expert_scale", count, "scale")
    both = b.stack("gate_up_proj", count, hidden, 2 * inner, ())
    down = b.stack("down_proj", count, inner, hidden, ())
    names = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
    after_mlp, after, before = (norm_of(b, name, hidden) for name in names)

    def run(m: Machine, fed: Tensor, residual: Tensor) -> Tensor:
        fed = after_mlp(m, fed)
        tokens = residual.numel // hidden
        routed = ops.scale(m, ops.mul(m, router_norm(m, residual), scale))
        scores = ops.softmax(m, apply(m, proj, routed), FP32)
        del routed
        chosen = m.new(tokens * top_k, INT64)
        weights = ops.gather(m, scores, chosen, tokens * top_k)
        weights = moe.normalised(m, weights, m.new(tokens * top_k, FP32), tokens)
        weights = ops.mul(m, weights, ops.gather(m, each, chosen, tokens * top_k))
        mixed = moe.dispatch(m, before(m, residual), weights, chosen, both, down, top_k, lambda m, t: moe.glu(m, t, act))
        return ops.add(m, fed, after(m, mixed))

    return run
