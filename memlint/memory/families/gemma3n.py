"""Gemma 3n's text decoder: four streams of which each layer works on one and corrects all (AltUp), a low-rank branch beside the
attention (LAuReL), an input per layer, and keys and values that the last layers share.

Read in transformers 5.24 `models/gemma3n/modeling_gemma3n.py`; attention and normalisation are Gemma 4's. The whole model's towers are
known by their weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families import gemma4, parts
from memlint.memory.families.gemma4 import norm_of
from memlint.memory.families.llama import is_windowed, windowed
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.families.vision_language import text_of
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.tensor import BYTE, FP32, Tensor
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture

Part = Callable[[Machine, Tensor], Tensor]

TOWERS = 975_475_552
"""Parameters of the vision tower (timm's `mobilenetv5_300m_enc`) and the audio tower: what the totals of E2B and of E4B both leave."""

SPARSE_LAYERS = 10
"""Layers whose gates keep their largest values only, where the configuration lists none (`Gemma3nTextConfig.__post_init__`)."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The decoder, alone or with the towers in front of it."""
    if a.model_type != "gemma3n":
        return _decoder(b, a, layers, lambda m, x: x)
    media, text = b.setup.media, text_of(a)
    if media.images:
        raise CannotEstimate("Gemma 3n's vision tower is timm's, what it keeps of an image has no page")
    b.enter_layer(-1)
    b.frozen = not media.aligner_trained
    embedders = [_embedder(b, a, key, text.hidden_size or 0) for key in ("vision_config", "audio_config")]
    b.frozen = not media.language_trained

    def marked(m: Machine, x: Tensor) -> Tensor:
        for embedder in embedders:
            x = embedder(m, x)
        return x

    b.model_type = text.model_type
    model = _decoder(b, text, layers, marked)
    b.frozen = not media.vision_trained
    b.parameter("towers", "conv", (TOWERS,))
    b.frozen = False
    return model


def _embedder(b: Builder, a: Architecture, key: str, hidden: int) -> Part:
    """`Gemma3nMultimodalEmbedder` on every token, chosen where a token is one of its own: begin and end of an image or a sound."""
    config = a.config.get(key)
    part = config if isinstance(config, Mapping) else {}
    width, rows = int(part.get("hidden_size") or 2048), int(part.get("vocab_size") or 128)
    table = b.embedding("embedding", rows, width)
    hard, _ = norm_of(b, "hard_embedding_norm", width), b.norm("soft_embedding_norm", width)
    linear, after = b.linear("embedding_projection", width, hidden), norm_of(b, "post", hidden, scaled=False)

    def run(m: Machine, x: Tensor) -> Tensor:
        mask, ids = m.new(m.tokens, BYTE), ops.token_ids(m, m.tokens)
        marks = ops.embedding(m, table, width, m.tokens, ids, inputs=False)
        marks = ops.cast(m, after(m, apply(m, linear, hard(m, marks))), x.itemsize)
        numel, itemsize = x.numel, x.itemsize
        out = m.new(numel, itemsize)
        return m.tape.record(out, (marks, x), lambda g: (m.new(numel, itemsize), m.new(numel, itemsize)), (mask.storage,))

    return run


def _decoder(b: Builder, a: Architecture, layers: int, marked: Part) -> Model:
    """The whole decoder with `layers` blocks; `marked` is done to the embedding of the tokens."""
    if layers < b.setup.layers:
        raise NotUniform
    hidden, config = a.hidden_size or 0, a.config
    extra, streams = int(config.get("hidden_size_per_layer_input") or 256), int(config.get("altup_num_inputs") or 4)
    b.enter_layer(-1)
    table = b.embedding("embed_tokens", b.setup.vocabulary, hidden)
    rows = int(config.get("vocab_size_per_layer_input") or b.setup.vocabulary)
    per_layer = b.embedding("embed_tokens_per_layer", rows, b.setup.depth * extra)
    project = b.linear("per_layer_model_projection", hidden, b.setup.depth * extra)
    project_norm = norm_of(b, "per_layer_projection_norm", extra)
    into = [b.linear("altup_projections", hidden, hidden) for _ in range(1, streams)]
    back = [b.linear("altup_unembed_projections", hidden, hidden) for _ in range(1, streams)]
    step = gemma4.Step()
    window = windowed(b, a, layers)
    held: list[Tensor] = []
    """The streams one by one, which a variable of the model's names until it has run."""

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        step.begin(m)
        x = ops.embedding(m, table, hidden, m.tokens, ops.token_ids(m, m.tokens), True)
        m.shared = []
        if window:
            masks = m.batch if m.mask is not None else 1
            m.shared.append(m.new(masks * m.sequence * m.sequence, m.mask.itemsize if m.mask is not None else BYTE))
        own = ops.embedding(m, per_layer, b.setup.depth * extra, m.tokens, ops.token_ids(m, m.tokens), True, inputs=False)
        x = marked(m, x)
        projected = project_norm(m, _scaled(m, apply(m, project, x)))
        m.shared.append(ops.scale(m, ops.add(m, projected, own)))  # the inputs of all layers, in one tensor
        del own, projected
        size = _magnitude(m, x, hidden)
        held[:] = [x, *(_of_size(m, apply(m, linear, x), size, hidden, x.itemsize) for linear in into)]
        x = ops.concat(m, tuple(held))
        for sliding in {is_windowed(a, index) for index in range(layers)}:
            step.tables[sliding] = parts.rotary_tables(m, a.head_dim or 256, x.itemsize)
        return step.passed(m, x)

    blocks = [_block(b, a, index, extra, streams, window, step) for index in range(layers)]
    b.enter_layer(-1)
    final = norm_of(b, "norm", hidden)

    def finish(m: Machine, x: Tensor) -> Tensor:
        m.shared = []
        step.end(b)
        few = x.numel // streams
        size = _magnitude(m, ops.narrow(m, x, few), hidden)
        held[:] = [ops.narrow(m, x, few)]
        held.extend(_of_size(m, apply(m, linear, ops.narrow(m, x, few)), size, hidden, table.itemsize) for linear in back)
        x = ops.sum_groups(m, ops.concat(m, tuple(held)), few)
        held.clear()
        return final(m, x)

    return gemma4.headed(b, a, Stage(embed, blocks, finish), table)


def _scaled(m: Machine, x: Tensor) -> Tensor:
    """`x *= number`."""
    numel, itemsize = x.numel, x.itemsize
    return m.tape.record(Tensor(x.storage, numel, itemsize), (x,), lambda g: (m.new(numel, itemsize),))


def _magnitude(m: Machine, x: Tensor, width: int) -> Tensor:
    """`torch.mean(x**2, -1, keepdim=True) ** 0.5`."""
    return ops.power(m, ops.mean_last(m, ops.power(m, x), width))


def _of_size(m: Machine, x: Tensor, size: Tensor, width: int, itemsize: int) -> Tensor:
    """A stream with the magnitude of the first."""
    x = ops.cast(m, x, itemsize)
    new = ops.small(m, ops.clamp(m, ops.mean_last(m, ops.power(m, x), width)))
    return ops.mul(m, ops.mul(m, x, size), new)


def _block(b: Builder, a: Architecture, index: int, extra: int, streams: int, window: bool, step: gemma4.Step) -> Block:
    b.enter_layer(index)
    config, hidden = a.config, a.hidden_size or 0
    total = b.setup.layers
    shares = index >= total - int(config.get("num_kv_shared_layers") or 0)
    attention = gemma4.attention_of(b, a, index, total, shares, window, step, bool(config.get("num_kv_shared_layers")))
    feed_forward = _mlp(b, a, index)
    names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    before, after, before_mlp, after_mlp = (norm_of(b, name, hidden) for name in names)
    b.parent = "altup"
    output_scale = b.vector("correct_output_scale", hidden, "scale")
    corrections, predictions_of = (
        b.linear("correction_coefs", streams, streams),
        b.linear("prediction_coefs", streams, streams**2),
    )
    corrections.tuner = None  # its weight is clamped first, and multiplied as it then is
    router, router_norm = b.linear("modality_router", hidden, streams), norm_of(b, "router_norm", hidden)
    left, rank = b.linear("linear_left", hidden, int(config.get("laurel_rank") or 64)), int(config.get("laurel_rank") or 64)
    right, laurel_norm = b.linear("linear_right", rank, hidden), norm_of(b, "post_laurel_norm", hidden)
    gate_in, back = b.linear("per_layer_input_gate", hidden, extra), b.linear("per_layer_projection", extra, hidden)
    last_norm = norm_of(b, "post_per_layer_input_norm", hidden)
    act = a.activation or "gelu_pytorch_tanh"

    def modalities(m: Machine, x: Tensor) -> Tensor:
        routed = apply(m, router, ops.scale(m, router_norm(m, x)))
        return ops.cast(m, ops.unary(m, ops.cast(m, routed, FP32), keeps="output"), x.itemsize)

    def predicted(m: Machine, x: Tensor) -> Tensor:
        few = x.numel // streams
        coefficients = apply(m, predictions_of, modalities(m, ops.narrow(m, x, few)))
        mixed = ops.add_in_place(m, ops.matmul(m, x, coefficients, x.numel), x)
        return ops.cast(m, ops.copy(m, mixed), x.itemsize)

    def corrected(m: Machine, predictions: Tensor, activated: Tensor) -> Tensor:
        few, numel = activated.numel, predictions.numel
        mode = modalities(m, activated)
        innovation = ops.spread(m, ops.subtract(m, activated, ops.narrow(m, predictions, few)), numel)
        weight = ops.clamp(m, corrections.weight)
        coefficients = ops.shift(m, ops.matmul(m, mode, weight, m.tokens * streams))
        return ops.cast(m, ops.add_in_place(m, ops.mul(m, innovation, coefficients), predictions), activated.itemsize)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        predictions = predicted(m, x)
        few = x.numel // streams
        active = ops.narrow(m, predictions, few)
        normed = before(m, active)
        laurel = ops.add(m, normed, laurel_norm(m, apply(m, right, apply(m, left, normed))))
        mixed = after(m, attention(m, normed))
        gated = ops.add(m, active, mixed)
        both = ops.scale(m, ops.add(m, gated, laurel))
        fed_in = before_mlp(m, both)
        fed = feed_forward(m, fed_in)
        fed_normed = after_mlp(m, fed)
        activated = ops.add(m, both, fed_normed)
        result = corrected(m, predictions, activated)
        first = ops.copy(m, ops.narrow(m, result, few))
        first = ops.cast(m, ops.mul(m, ops.cast(m, first, output_scale.itemsize), output_scale), result.itemsize)
        first = parts.activation(m, apply(m, gate_in, first), act)
        first = ops.mul(m, first, ops.narrow(m, m.shared[-1], m.tokens * extra))
        first = last_norm(m, apply(m, back, first))
        return _added_behind_first(m, result, first)

    return block


def _added_behind_first(m: Machine, x: Tensor, other: Tensor) -> Tensor:
    """`x[1:] += other`: a slice of the gradient is copied out of a copy (`CopySlices`)."""
    numel, few, itemsize, less = x.numel, other.numel, x.itemsize, other.itemsize
    view = Tensor(x.storage, numel, itemsize, x.node, x.index)

    def rule(g: Tensor) -> tuple[Tensor | None, ...]:
        return m.new(numel, itemsize), ops.reduced(m, m.new(numel - few, itemsize), few, less)

    return m.tape.record(view, (x, other), rule)


def _mlp(b: Builder, a: Architecture, index: int) -> Part:
    """A gated MLP; sparse gates lose a mean and a multiple of their deviation first."""
    b.parent = "mlp"
    hidden, sizes = a.hidden_size or 0, a.config.get("intermediate_size")
    inner = int(sizes[index]) if isinstance(sizes, Sequence) and index < len(sizes) else a.intermediate_size or 0
    gate, up = b.linear("gate_proj", hidden, inner), b.linear("up_proj", hidden, inner)
    down = b.linear("down_proj", inner, hidden)
    listed = a.config.get("activation_sparsity_pattern")
    usual = index < SPARSE_LAYERS < b.setup.depth
    sparse = bool(listed[index]) if isinstance(listed, Sequence) and index < len(listed) else usual
    act = a.activation or "gelu_pytorch_tanh"

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        gated = apply(m, gate, x)
        if sparse:
            gated = _top(m, gated, inner)
        activations = parts.activation(m, gated, act)
        return apply(m, down, ops.mul(m, activations, apply(m, up, x)))

    return feed_forward


def _top(m: Machine, x: Tensor, width: int) -> Tensor:
    """`relu(x - (mean + std * number))`."""
    mean = ops.mean_last(m, x, width)
    numel, itemsize = x.numel, x.itemsize
    deviation = m.new(numel // width, itemsize)
    deviation = m.tape.record(deviation, (x,), lambda g: (m.new(numel, itemsize),), (x.storage, deviation.storage))
    cut = ops.add(m, mean, ops.scale(m, deviation))
    return ops.unary(m, ops.subtract(m, x, cut), keeps="output")
