"""Speech encoders: convolutions over the sound, then a transformer over its frames (wav2vec 2.0, HuBERT).

Read in transformers 5.24 `models/wav2vec2/modeling_wav2vec2.py` and `models/hubert/modeling_hubert.py`. The sequence length counts frames
(one for every 320 samples with the usual strides). Layer drop and masking in time are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.memory import convolutions, ops
from memlint.memory.attention import Shape, attend, in_dtype_of
from memlint.memory.build import Builder
from memlint.memory.checkpointing import checkpointed
from memlint.memory.families import parts, wavlm
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.families.vision import Norm
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.tensor import BYTE, FP32, Tensor
from memlint.models.architecture import Architecture
from memlint.typed import Any


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Feature encoder, transformer and the head of the objective."""
    config, hidden = a.config, a.hidden_size or 768
    b.enter_layer(-1)
    if config.get("mask_time_prob", 0.05) or config.get("mask_feature_prob"):
        b.parameter("masked_spec_embed", "token", (hidden,))
    widths = tuple(int(width) for width in config.get("conv_dim") or (512,) * 7)
    kernels = tuple(int(kernel) for kernel in config.get("conv_kernel") or (10, 3, 3, 3, 3, 2, 2))
    strides = tuple(int(stride) for stride in config.get("conv_stride") or (5, 2, 2, 2, 2, 2, 2))
    lengths = _lengths(b.machine.sequence, kernels, strides)
    convolutions = [_convolution(b, config, i, widths, kernels, lengths) for i in range(len(widths))]
    first = _norm(b, "layer_norm", widths[-1])
    project = b.linear("projection", widths[-1], hidden, bias=True)
    positions = _positions(b, config, hidden)
    stable = bool(config.get("do_stable_layer_norm"))
    norm = _norm(b, "layer_norm", hidden)
    dropout = float(config.get("hidden_dropout") or 0.0)
    between = float(config.get("feat_proj_dropout") or 0.0)
    sound: list[Tensor] = []
    local: list[Tensor] = []
    """What the encoder's local variables hold until its blocks have run."""

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        sound[:] = [m.new(m.batch * lengths[0], b.setup.weight_itemsize)]
        x = Tensor(sound[0].storage, sound[0].numel, sound[0].itemsize)
        if m.training:
            x = m.tape.leaf(x)  # `hidden_states.requires_grad = True`, for checkpointing
        for convolution in convolutions:
            if b.setup.checkpointing == "full":
                x = checkpointed(m, b.setup, None, convolution, x, None, -1)
            else:
                x = convolution(m, x, None)
        if a.model_type == "hubert":
            local.append(x)
        x = first(m, x)
        if a.model_type != "hubert":
            m.named.append(x)  # its output holds what was normalised as well, `extract_features`
        x = apply(m, project, x)
        x = ops.dropout(m, x, between)
        if m.mask is not None:
            padded = m.new(x.numel, BYTE)
            local.append(m.new(x.numel, BYTE))  # what is not padded
            x = m.tape.record(Tensor(x.storage, x.numel, x.itemsize), (x,), _zeroed(m, x), (padded.storage,))
            del padded
        if a.model_type == "wavlm" and m.mask is not None:
            m.mask = m.new(m.tokens, BYTE)  # one number for each frame is all that its attention is given
        in_dtype_of(m, x)
        placed = positions(m, x)
        local.extend((x, placed))
        x = ops.add(m, x, placed)
        if not stable:
            x = norm(m, x)
        return ops.dropout(m, x, dropout)

    blocks = [_block(b, a, index, stable) for index in range(layers)]
    b.enter_layer(-1)

    def finish(m: Machine, x: Tensor) -> Tensor:
        x = norm(m, x) if stable else x
        if b.setup.checkpointing == "none":
            m.shared = []
        local.clear()
        return x

    return headed(b, config, Stage(embed, blocks, finish), hidden)


def _lengths(frames: int, kernels: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Samples in front of every convolution, and the frames behind the last."""
    lengths = [frames]
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        lengths.append((lengths[-1] - 1) * stride + kernel)
    return tuple(reversed(lengths))


def _norm(b: Builder, name: str, width: int) -> Norm:
    weight, bias = b.norm(name, width), b.vector(f"{name}.bias", width)
    return lambda m, x: parts.layer_norm(m, x, weight, bias, width)


def _zeroed(m: Machine, x: Tensor) -> Any:
    """Backward of `x[~mask] = 0`: the gradient is copied and zeroed there."""
    numel, itemsize = x.numel, x.itemsize
    return lambda g: (m.new(numel, itemsize),)


def _convolution(
    b: Builder, config: Mapping[str, Any], index: int, widths: tuple[int, ...], kernels: tuple[int, ...], lengths: tuple[int, ...]
) -> Block:
    width, before = widths[index], widths[index - 1] if index else 1
    weight = b.parameter("conv", "conv", (width, before * kernels[index]))
    bias = b.vector("conv.bias", width) if config.get("conv_bias") else None
    grouped = config.get("feat_extract_norm", "group") == "group"
    normed = index == 0 if grouped else True
    scale, shift = (b.norm("layer_norm", width), b.vector("layer_norm.bias", width)) if normed else (None, None)
    act = str(config.get("feat_extract_activation") or "gelu")
    length = lengths[index + 1]

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        x = convolutions.convolution(m, x, weight, bias, m.batch * width * length)
        if normed:  # a group norm has as many statistics as channels, a layer norm as positions
            x = ops.layer_norm(m, x, scale, shift, width, m.batch * width if grouped else m.batch * length)
        return parts.activation(m, x, act)

    return block


def _positions(b: Builder, config: Mapping[str, Any], hidden: int) -> Norm:
    """`PositionalConvEmbedding`: a grouped convolution whose weight is made of a direction and a length in every forward pass."""
    kernel, groups = int(config.get("num_conv_pos_embeddings") or 128), int(config.get("num_conv_pos_embedding_groups") or 16)
    bias = b.vector("conv.bias", hidden)
    lengths = b.parameter("original0", "conv", (kernel,))
    direction = b.parameter("original1", "conv", (hidden, hidden // groups * kernel))
    act = str(config.get("feat_extract_activation") or "gelu")

    def run(m: Machine, x: Tensor) -> Tensor:
        weight = convolutions.weight_norm(m, direction, lengths)
        longer = m.batch * (m.sequence + 1 - kernel % 2) * hidden
        out = convolutions.convolution(m, x, weight, bias, longer)
        del weight
        if kernel % 2 == 0:
            out = ops.narrow(m, out, x.numel)
        return parts.activation(m, out, act)

    return run


def _block(b: Builder, a: Architecture, index: int, stable: bool) -> Block:
    b.enter_layer(index)
    config, hidden, heads = a.config, a.hidden_size or 768, a.heads or 12
    inner = a.intermediate_size or 4 * hidden
    attention_drop, dropout = float(config.get("attention_dropout") or 0.0), float(config.get("hidden_dropout") or 0.0)
    inner_dropout, act = float(config.get("activation_dropout") or 0.0), a.activation or "gelu"
    own = wavlm.attention_of(b, a, index) if a.model_type == "wavlm" else None
    b.parent = "attn"
    names = ("k_proj", "v_proj", "q_proj", "out_proj") if own is None else ()
    projections = [b.linear(name, hidden, hidden, bias=True) for name in names]
    norm = _norm(b, "layer_norm", hidden)
    b.parent = "mlp"
    up, down = b.linear("intermediate_dense", hidden, inner, bias=True), b.linear("output_dense", inner, hidden, bias=True)
    final = _norm(b, "final_layer_norm", hidden)

    def attention(m: Machine, x: Tensor) -> Tensor:
        size = hidden // heads
        shape = Shape(
            m.batch, m.sequence, m.sequence, heads, heads, size, size, attention_drop, causal=False, float32_softmax=False
        )
        k, v, q, out = projections
        query, key, value = (apply(m, projection, x) for projection in (q, k, v))
        mixed = attend(m, query, key, value, shape)
        return apply(m, out, mixed)

    def feed_forward(m: Machine, x: Tensor) -> Tensor:
        states = apply(m, up, x)
        states = parts.activation(m, states, act)
        states = ops.dropout(m, states, inner_dropout)
        states = apply(m, down, states)
        return ops.dropout(m, states, dropout)

    def block(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        residual = x
        if stable:
            x = norm(m, x)
        x = attention(m, x) if own is None else own(m, x)
        x = ops.dropout(m, x, dropout)
        x = ops.add(m, residual, x)
        if stable:
            return ops.add(m, x, feed_forward(m, final(m, x)))
        x = norm(m, x)
        x = ops.add(m, x, feed_forward(m, x))
        return final(m, x)

    return block


def headed(b: Builder, config: Mapping[str, Any], stage: Stage, hidden: int) -> Model:
    """Frames as letters (CTC), or one class for the sound."""
    if b.setup.objective == "ctc":
        if not b.setup.vocabulary:
            raise CannotEstimate("how many letters the head tells apart is not known (`vocab_size`)")
        letters, dropout = b.setup.vocabulary, float(config.get("final_dropout") or 0.0)
        head = b.linear("lm_head", hidden, letters, bias=True)

        def loss(m: Machine, x: Tensor) -> Tensor:
            logits = apply(m, head, ops.dropout(m, x, dropout))
            return ops.sum_last(m, ops.softmax(m, logits, FP32), 1)

        return Model([stage], None, None, hidden, letters, causal=False, loss=loss, names_embedding=False)
    width = int(config.get("classifier_proj_size") or 256)
    projector = b.linear("projector", hidden, width, bias=True)
    classifier = b.linear("classifier", width, b.setup.num_labels, bias=True)

    def classify(m: Machine, x: Tensor) -> Tensor:
        x = apply(m, projector, x)
        if b.setup.padding_mask:  # `hidden_states[~expand_padding_mask] = 0`
            padded = m.new(x.numel, BYTE)
            x = m.tape.record(Tensor(x.storage, x.numel, x.itemsize), (x,), _zeroed(m, x), (padded.storage,))
        return apply(m, classifier, ops.mean_last(m, x, m.sequence))

    model = Model([stage], classify, None, hidden, b.setup.num_labels, causal=False, reads_all=True, names_embedding=False)
    # `filter_output_hidden_states` around the classifier collects them (`backbone_utils.py` of transformers 5.24; none in 4.57).
    model.names_states = b.setup.stack.transformers >= (5, 0)
    return model
