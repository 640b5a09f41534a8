"""Vision-language models: a vision tower and a projector in front of a text decoder that has a page of its own.

Read in transformers 5.24 `models/<type>/modeling_<type>.py`. The tower runs only when a run states images (`batch.images`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.memory import convolutions, ops
from memlint.memory.attention import make_mask
from memlint.memory.build import Builder
from memlint.memory.checkpointing import checkpointed, run
from memlint.memory.families import gemma4_towers, llama4_tower, parts, perceiver
from memlint.memory.families.gemma4 import norm_of
from memlint.memory.families.model import Block, Model, Stage
from memlint.memory.families.vision import STYLES, Tower, spread_token, tower_of
from memlint.memory.linear import Linear, apply
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.targets import DEFAULTS
from memlint.memory.tensor import BYTE, FP32, INT64, Parameter, Tensor
from memlint.memory.tiles import tiles_of
from memlint.models import from_config
from memlint.models.architecture import Architecture
from memlint.typed import Any

Projector = Callable[[Machine, Tensor], Tensor]

BIDIRECTIONAL = {"gemma3", "paligemma"}
"""Types whose image tokens see one another (a prefix sees itself), for which a mask is made in any case."""

GATHERS = {"llava_next", "llava_onevision", "idefics2", "idefics3", "smolvlm"}
"""Types that put the pieces of all images together first."""

MERGES = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"}
"""Types whose projector merges `spatial_merge_size` squared patches into one token."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Tower, projector and decoder."""
    b.enter_layer(-1)
    vision = a.config.get("vision_config")
    if not isinstance(vision, Mapping):
        raise CannotEstimate(f"no vision configuration in {a.name}")
    media = b.setup.media
    b.frozen = not media.vision_trained
    side = media.image_size or _dynamic_side(vision, media.max_pixels)
    if tiles_of(a.model_type, a.config):
        side = 0  # every piece has the tower's own size
    if a.model_type in ("gemma4", "gemma4_unified"):
        whole = a.model_type == "gemma4"
        tower = (gemma4_towers.vision_tower if whole else gemma4_towers.patch_embedder)(b, vision, side)
        audio = a.config.get("audio_config")
        if isinstance(audio, Mapping):
            width = gemma4_towers.audio_weights(b, audio) if whole else int(audio.get("audio_embed_dim") or 640)
            b.linear("embedding_projection", width, text_of(a).hidden_size or 0)
    elif a.model_type == "llama4":
        tower = llama4_tower.vision_tower(b, vision, side)
    else:
        kind = _kind(vision, a.model_type)
        if kind in ("glm4v_vision", "glm4v_moe_vision"):  # its blocks are as wide inside as what it hands on
            tower = tower_of(b, {**vision, "intermediate_size": vision.get("out_hidden_size")}, kind, side)
        else:
            tower = tower_of(b, vision, kind, side)
        tower.gathers = a.model_type in GATHERS
    b.frozen = not media.aligner_trained
    project = _projector(b, a, vision, tower)
    b.frozen = not media.language_trained
    model = decoder_of(b, a, layers)
    b.frozen = False
    if media.images:
        bidirectional = a.model_type in BIDIRECTIONAL or (
            a.model_type == "gemma4_unified" and text_of(a).config.get("use_bidirectional_attention") == "vision"
        )
        model.stages[0] = with_features(b, tower, project, _used(a, tower), bidirectional, model.stages[0])
    return model


def _kind(vision: Mapping[str, Any], model_type: str) -> str:
    kind = str(vision.get("model_type") or "")
    for name in (kind, model_type):
        if name in STYLES:
            return name
    raise CannotEstimate(f"no memory page for vision tower {kind or model_type!r}")


def _dynamic_side(vision: Mapping[str, Any], max_pixels: int) -> int:
    """The square image that a pixel cap allows, a multiple of the merged patch."""
    if not max_pixels:
        return 0
    patch = int(vision.get("patch_size") or 14) * int(vision.get("spatial_merge_size") or 1)
    return max(int(max_pixels**0.5) // patch, 1) * patch


def text_of(a: Architecture) -> Architecture:
    """The text decoder's architecture."""
    config = a.config.get("text_config")
    inner = dict(config) if isinstance(config, Mapping) else {}
    inner.setdefault("tie_word_embeddings", a.tied)
    return from_config(inner, a.name)


def decoder_of(b: Builder, a: Architecture, layers: int) -> Model:
    """The decoder from its own page."""
    from memlint.memory.families import page_of

    text = text_of(a)
    if a.model_type not in DEFAULTS:  # PEFT goes by the type of the whole
        b.model_type = text.model_type
    return page_of(text.model_type, "transformers")(b, text, layers)


def _used(a: Architecture, tower: Tower) -> int | None:
    """Behind how many of the tower's blocks the features are taken, what comes after running in vain (LLaVA); None: behind all of it."""
    layer = a.config.get("vision_feature_layer")
    if not isinstance(layer, int) or (a.model_type == "internvl" and layer == -1):
        return None
    return layer if layer >= 0 else len(tower.blocks) + 1 + layer


def _projector(b: Builder, a: Architecture, vision: Mapping[str, Any], tower: Tower) -> Projector:
    """From the tower's states to tokens of the language model."""
    text = text_of(a)
    hidden, width = text.hidden_size or 0, tower.hidden
    kind = a.model_type
    if kind in ("glm4v", "glm4v_moe"):
        return _downsampled(b, vision, tower)
    if kind in MERGES:
        side = int(vision.get("spatial_merge_size") or 2)
        merger = _merger(b, kind, vision, tower, side * side)
        return (lambda m, x: _reordered(m, merger(m, x))) if tower.window else merger
    if kind == "gemma3":
        weight = b.parameter("mm_input_projection_weight", "projector", (width, hidden))
        norm = b.norm("mm_soft_emb_norm", width)
        tokens = int(a.config.get("mm_tokens_per_image") or 256)
        pool = max(tower.patches // tokens, 1)

        def soft(m: Machine, x: Tensor) -> Tensor:
            x = ops.average_pool(m, ops.copy(m, x), pool)  # in the layout of an image
            x = parts.gemma_norm(m, x, norm, width)
            return ops.matmul(m, x, weight, x.numel // width * hidden)

        return soft
    if kind in ("gemma4", "gemma4_unified"):
        linear = b.linear("embedding_projection", width, hidden)
        bare = norm_of(b, "embedding_pre_projection_norm", width, scaled=False)
        return lambda m, x: _unpadded(m, apply(m, linear, bare(m, x)), kind, tower)
    if kind == "llama4":
        single = b.linear("linear_1", width, hidden)
        return lambda m, x: apply(m, single, x)
    if kind == "paligemma":
        linear = b.linear("linear", width, int(vision.get("projection_dim") or hidden), bias=True)
        return lambda m, x: apply(m, linear, x)
    if kind == "idefics2":
        resampler = a.config.get("perceiver_config")
        inner = text.intermediate_size or 0
        return perceiver.connector(
            b, resampler if isinstance(resampler, Mapping) else {}, tower, inner, hidden, text.activation or "silu"
        )
    if kind in ("idefics3", "smolvlm"):
        side = int(a.config.get("scale_factor") or 2)
        linear = b.linear("proj", width * side * side, hidden)
        return lambda m, x: apply(m, linear, ops.copy(m, x))
    newline = b.parameter("image_newline", "token", (hidden,)) if kind.startswith("llava_") else None
    bias = bool(a.config.get("multimodal_projector_bias", True))
    if kind == "mistral3":
        side = int(a.config.get("spatial_merge_size") or 2)
        norm = b.norm("norm", width)
        merging = b.linear("merging_layer", width * side * side, width)
        pair = (b.linear("linear_1", width, hidden, bias=bias), b.linear("linear_2", hidden, hidden, bias=bias))

        def merge(m: Machine, x: Tensor) -> Tensor:
            return _two(m, apply(m, merging, ops.copy(m, parts.rms_norm(m, x, norm, width))), pair)

        return merge
    if kind == "internvl":
        side = int(1 / float(a.config.get("downsample_ratio") or 0.5))
        wide = width * side * side
        weight, shift = b.norm("layer_norm", wide), b.vector("layer_norm.bias", wide)
        pair = (b.linear("linear_1", wide, hidden, bias=True), b.linear("linear_2", hidden, hidden, bias=True))
        return lambda m, x: _two(m, parts.layer_norm(m, ops.copy(m, x), weight, shift, wide), pair)
    pair = (b.linear("linear_1", width, hidden, bias=bias), b.linear("linear_2", hidden, hidden, bias=bias))
    crops = (
        tower.patches
        if kind.startswith("llava") and a.config.get("vision_feature_select_strategy", "default") == "default"
        else 0
    )
    packed = _packed(tower, b.setup.media.tiles, newline, crops > 0) if newline is not None else None

    def patches_only(m: Machine, x: Tensor) -> Tensor:
        if crops:  # without the first token the rows of different images are no longer one matrix
            x = ops.narrow(m, x, x.numel // crops * (crops - 1))
        if (crops or tower.across) and not (m.autocast and x.itemsize == FP32):
            x = ops.copy(m, x)
        x = _two(m, x, pair)
        return packed(m, x) if packed is not None else x

    return patches_only


def _packed(tower: Tower, tiles: int, newline: Parameter, crops: bool) -> Projector:
    """LLaVA-NeXT: the pieces of an image put together as they lie, a learned vector at the end of each row, behind the whole image
    (`pack_image_features`; nothing is cut off for the image's shape)."""

    def packed(m: Machine, x: Tensor) -> Tensor:
        patches = tower.patches - crops
        whole, pieces = ops.split(m, x, (x.numel // tiles, x.numel - x.numel // tiles))
        rows = tower.images // tiles * round(((tiles - 1) * patches) ** 0.5)
        ends = spread_token(m, ops.cast(m, newline, x.itemsize), rows * newline.numel)
        x = ops.concat(m, (ops.copy(m, pieces), ends)) if tiles > 1 else whole
        del pieces
        return ops.concat(m, (whole, x))

    return packed


def _reordered(m: Machine, x: Tensor) -> Tensor:
    """Back from the order of windows: one index for each token, no more than a number for each of its elements."""
    return ops.gather(m, x, m.new(1, INT64), x.numel)


def _downsampled(b: Builder, vision: Mapping[str, Any], tower: Tower) -> Projector:
    """GLM-4V: a convolution over `spatial_merge_size` squared patches, a projection with its norm, a gated MLP."""
    side, out = int(vision.get("spatial_merge_size") or 2), int(vision.get("out_hidden_size") or 0)
    inner = int(vision.get("intermediate_size") or 0)
    kernel = b.parameter("downsample", "conv", (out, tower.hidden * side * side))
    kernel_bias = b.vector("downsample.bias", out)
    proj = b.linear("proj", out, out)
    weight, shift = b.norm("post_projection_norm", out), b.vector("post_projection_norm.bias", out)
    gate, up, down = b.linear("gate_proj", out, inner), b.linear("up_proj", out, inner), b.linear("down_proj", inner, out)
    act = str(vision.get("hidden_act") or "silu")

    def merge(m: Machine, x: Tensor) -> Tensor:
        x = convolutions.convolution(m, x, kernel, kernel_bias, x.numel // (tower.hidden * side * side) * out)
        m.named.append(x)  # `last_hidden_state`
        x = ops.unary(m, parts.layer_norm(m, apply(m, proj, x), weight, shift, out))
        return parts.gated_mlp(m, x, gate, up, down, act)

    return merge


def _two(m: Machine, x: Tensor, pair: tuple[Linear, Linear]) -> Tensor:
    return apply(m, pair[1], ops.unary(m, apply(m, pair[0], x)))


def _unpadded(m: Machine, x: Tensor, kind: str, tower: Tower) -> Tensor:
    """Without a tower, which drops what fills an image up, it is done here: rows picked by two numbers each."""
    return x if kind == "gemma4" else ops.gather(m, x, m.new(2 * tower.rows, INT64), x.numel)


def _merger(b: Builder, kind: str, vision: Mapping[str, Any], tower: Tower, unit: int) -> Projector:
    """`PatchMerger` of the Qwen-VL line; Qwen3-VL has one more for each deep feature."""
    wide = tower.hidden * unit
    out = int(vision.get("out_hidden_size") or vision.get("hidden_size") or tower.hidden)
    names = ("mlp_0", "mlp_2") if kind.startswith("qwen2") else ("linear_fc1", "linear_fc2")
    rms = kind == "qwen2_5_vl"
    deep = vision.get("deepstack_visual_indexes") or () if kind.startswith("qwen3_vl") else ()

    def one(norm_width: int) -> Projector:
        weight = b.norm("norm", norm_width)
        shift = None if rms else b.vector("norm.bias", norm_width)
        pair = (b.linear(names[0], wide, wide, bias=True), b.linear(names[1], wide, out, bias=True))

        def run(m: Machine, x: Tensor) -> Tensor:
            normed = parts.rms_norm(m, x, weight, norm_width) if rms else parts.layer_norm(m, x, weight, shift, norm_width)
            return _two(m, normed, pair)

        return run

    merger = one(tower.hidden)
    tower.deep = {int(index): one(wide) for index in deep}
    return merger


def with_features(
    b: Builder,
    tower: Tower,
    project: Projector,
    used: int | None,
    bidirectional: bool,
    stage: Stage,
    pieces: int = 0,
) -> Stage:
    """The text model with image features scattered into its embedding; a local variable of the model's holds them until it returns.

    A sample has so many `pieces` of images; 0: as the run says.
    """
    setup = b.setup
    held: list[Tensor] = []

    def finish(m: Machine, x: Tensor) -> Tensor:
        x = stage.finish(m, x)
        held.clear()
        return x

    def seen(m: Machine, context: Tensor | None) -> Tensor:
        x = stage.embed(m, context)
        before = tower.mask, [*tower.tables]  # a reference's pass leaves what the policy's recomputation will look at
        tower.images = m.batch * (pieces or setup.media.images * setup.media.tiles)
        states = chosen = tower.embed(m)
        deep: list[Tensor] = []
        for index, block in enumerate(tower.blocks):
            if setup.checkpointing == "full" and setup.reentrant and tower.named_inputs:
                states = _unseen(m, block, states)
            elif setup.checkpointing == "full":
                states = checkpointed(m, setup, None, block, states, None, -1)
            else:
                states = run(m, block, states, None)
            if index in tower.deep:
                deep.append(tower.deep[index](m, states))
                m.named.append(deep[-1])
            if index + 1 == used:
                chosen = states
                m.named.append(states)  # `hidden_states` of the tower's output
        if setup.checkpointing != "full" or states.node is None:  # no block will be recomputed and look at them again
            tower.mask, tower.tables[:] = before
        last = tower.finish(m, states)
        if tower.named:
            m.named += (last, tower.pooled(m, last))
        features = project(m, last if used is None else chosen)
        tower.gathered = None
        del states, chosen, last
        m.named.append(features)
        if tower.gathers:  # a list of what each image became
            features = ops.concat(m, (features,))
        features = ops.cast(m, features, x.itemsize)
        held[:] = [features]
        if bidirectional and m.mask is None and not m.embedded:
            m.mask = make_mask(m, BYTE)
        places = m.new(m.tokens, BYTE)
        if deep:
            m.shared = [*(ops.concat(m, (feature,)) for feature in deep), places]
        return _scattered(m, x, features, places)

    blocks = list(stage.blocks)
    for index in range(1, len(tower.deep) + 1):
        blocks[index : index + 1] = [_joined(block, index - 1) for block in blocks[index : index + 1]]
    return Stage(seen, blocks, finish, stage.between)


def _unseen(m: Machine, block: Block, x: Tensor) -> Tensor:
    """A block whose inputs all have names: reentrant checkpointing finds none that needs a gradient, and nothing of it is trained."""
    enabled, m.tape.enabled = m.tape.enabled, False
    x = run(m, block, x, None)
    m.tape.enabled = enabled
    return x


def _joined(block: Block, index: int) -> Block:
    """A block of the text behind the addition of deep features to what the block before it made (`_deepstack_process`)."""

    def joined(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        if m.shared:
            feature, places = ops.cast(m, m.shared[index], x.itemsize), m.shared[-1]
            x = ops.copy(m, x)
            local = ops.add(m, ops.gather(m, x, places, feature.numel), feature)
            del feature
            numel, few, itemsize = x.numel, local.numel, x.itemsize
            view = Tensor(x.storage, numel, itemsize, x.node, x.index)
            x = m.tape.record(view, (x, local), lambda g: (m.new(numel, itemsize), m.new(few, itemsize)), (places.storage,))
            del view, local
        return block(m, x, context)

    return joined


def _scattered(m: Machine, x: Tensor, features: Tensor, mask: Tensor) -> Tensor:
    """`inputs_embeds.masked_scatter(mask, features)`: keeps the mask; backward masks and picks."""
    out = m.new(x.numel, x.itemsize)
    nx, nf, itemsize = x.numel, features.numel, x.itemsize
    need_x, need_f = x.node is not None, features.node is not None

    def rule(g: Tensor) -> tuple[Tensor | None, ...]:
        return m.new(nx, itemsize) if need_x else None, m.new(nf, itemsize) if need_f else None

    return m.tape.record(out, (x, features), rule, (mask.storage,))
