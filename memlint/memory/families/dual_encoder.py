"""Dual encoders: a vision tower and a text encoder whose pooled results are compared (CLIP, SigLIP).

Read in transformers 5.24 `models/clip/modeling_clip.py` and `models/siglip/modeling_siglip.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families import image_classification, vision
from memlint.memory.families.encoder_decoder import two_stacks
from memlint.memory.families.model import Model, Stage
from memlint.memory.linear import Linear, apply
from memlint.memory.machine import Machine
from memlint.memory.result import CannotEstimate
from memlint.memory.tensor import FP32, INT64, Tensor
from memlint.models.architecture import Architecture


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Both towers and the contrastive loss; the vision tower alone when images are classified."""
    if b.setup.objective == "image_classification":
        return image_classification.build(b, a, layers)
    two_stacks(b, layers)
    clip = a.model_type == "clip"
    text, images = _part(a.config, "text_config"), _part(a.config, "vision_config")
    b.enter_layer(-1)
    scales = [b.vector(name, 1, "scale") for name in ("logit_scale", "logit_bias")[: 1 if clip else 2]]
    depth = int(images.get("num_hidden_layers") or layers)
    side = b.setup.media.image_size
    tower = vision.tower_of(b, images, str(images.get("model_type")), side, depth, with_layers=True)
    b.enter_layer(-1)
    width = tower.hidden
    words = _text_tower(b, text, depth, causal=clip)
    b.enter_layer(-1)
    projections: list[Linear] = []
    if clip:
        common = int(a.config.get("projection_dim") or 512)
        projections = [b.linear("visual_projection", width, common), b.linear("text_projection", words.hidden, common)]
    else:
        common = int(text.get("projection_size") or words.hidden)
        projections = [b.linear("head", words.hidden, common, bias=True)]
    sequence = b.machine.sequence
    features: list[Tensor] = []
    masks: list[Tensor | None] = []

    def see(m: Machine, context: Tensor | None) -> Tensor:
        tower.images = m.batch
        masks[:] = [m.mask]
        m.mask = None
        return tower.embed(m)

    def seen(m: Machine, x: Tensor) -> Tensor:
        x = tower.finish(m, x)
        m.named.append(x)
        pooled = tower.pooled(m, x)
        features[:] = [apply(m, projections[0], pooled) if clip else pooled]
        return features[0]

    def read(m: Machine, context: Tensor | None) -> Tensor:
        m.mask = masks.pop()
        words.images, words.patches = m.batch, sequence
        return words.embed(m)

    def compared(m: Machine, x: Tensor) -> Tensor:
        x = words.finish(m, x)
        m.named.append(x)
        if clip:
            index = m.new(m.batch, INT64)
            pooled = ops.gather(m, x, index, m.batch * words.hidden)
        else:
            pooled = ops.narrow(m, x, m.batch * words.hidden)
        del x
        features.append(apply(m, projections[-1], pooled))
        return features[-1]

    def loss(m: Machine, hidden: Tensor) -> Tensor:
        if len(features) < 2:
            raise CannotEstimate("one stage of a dual encoder has only one of the two features that its loss compares")
        text_features, image_features = features.pop(), features.pop()
        similarity = ops.matmul(m, _unit(m, text_features, common), _unit(m, image_features, common), m.batch * m.batch)
        similarity = ops.mul(m, similarity, ops.unary(m, scales[0], keeps="output"))
        return _cross_entropy(m, similarity) if clip else _sigmoid_loss(m, ops.add(m, similarity, scales[1]))

    stages = [Stage(see, tower.blocks, seen), Stage(read, words.blocks, compared)]
    return Model(stages, None, None, words.hidden, 0, causal=clip, loss=loss)


def _part(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = config.get(key)
    return part if isinstance(part, Mapping) else {}


def _text_tower(b: Builder, config: Mapping[str, Any], first: int, causal: bool) -> vision.Tower:
    """The text encoder: blocks like those of the vision tower, over embedded tokens."""
    style = vision.STYLES["clip_vision_model"]
    hidden = int(config.get("hidden_size") or 512)
    rows = int(config.get("max_position_embeddings") or 77)
    table = b.embedding("token_embedding", b.setup.vocabulary, hidden)
    places = b.embedding("position_embedding", rows, hidden)
    ids = b.buffer(rows, INT64)
    tower = vision.Tower(hidden, lambda m: m.new(0, 2), [], lambda m, x: x)
    tower.causal, tower.masked = causal, True
    for index in range(int(config.get("num_hidden_layers") or 12)):
        b.enter_layer(first + index)
        tower.blocks.append(vision.block_of(b, config, style, tower))
    b.enter_layer(-1)
    norm = vision.norm_of(b, style, "final_layer_norm", hidden)
    tower.finish = norm

    def embed(m: Machine) -> Tensor:
        x = ops.embedding(m, table, hidden, m.tokens, ids)  # the batch holds the ids itself
        return ops.add(m, x, ops.embedding(m, places, hidden, m.sequence, ids, inputs=False))

    tower.embed = embed
    return tower


def _unit(m: Machine, x: Tensor, width: int) -> Tensor:
    """`x / x.norm(dim=-1, keepdim=True)`."""
    norm = ops.sum_last(m, ops.power(m, x), x.numel // width)
    return ops.mul(m, x, ops.power(m, norm))


def _cross_entropy(m: Machine, similarity: Tensor) -> Tensor:
    """CLIP: cross entropy over the captions and over the images."""
    rows = ops.softmax(m, similarity, similarity.itemsize)
    columns = ops.softmax(m, similarity, similarity.itemsize)
    return ops.sum_last(m, ops.add(m, rows, columns), 1)


def _sigmoid_loss(m: Machine, similarity: Tensor) -> Tensor:
    """SigLIP: every pair is a binary choice; the signs are float32."""
    signs = m.new(similarity.numel, FP32)
    signed = ops.mul(m, signs, similarity)
    return ops.sum_last(m, ops.unary(m, signed), 1)
