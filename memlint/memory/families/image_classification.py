"""Classifiers of images, videos and spectrograms: a vision transformer and a linear on what it says of each (transformers 5.24)."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families.model import Model, Stage
from memlint.memory.families.vision import STYLES, norm_of, tower_of
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor
from memlint.models.architecture import Architecture

READS = {"clip": "patches", "siglip": "all", "dinov2": "both", "dinov2_with_registers": "both", "beit": "patches",
         "audio-spectrogram-transformer": "two", "videomae": "all"}  # fmt: skip
"""What the classifier reads: the mean of the first two positions, of the patches, of all positions, or both the first token and the mean;
else the first token."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Tower and classifier."""
    b.enter_layer(-1)
    inner = a.config.get("vision_config")  # a dual encoder's
    config = inner if isinstance(inner, Mapping) else a.config
    reads = READS.get(a.model_type, "first")
    tower = tower_of(b, config, str(config.get("model_type")), b.setup.media.image_size, layers, with_layers=True)
    b.enter_layer(-1)
    width, labels = tower.hidden, b.setup.num_labels
    after = norm_of(b, STYLES["beit"], "layernorm", width) if config.get("use_mean_pooling") or reads == "two" else None
    classifier = b.linear("classifier", 2 * width if reads == "both" else width, labels, bias=True)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        tower.images, m.sequence, m.mask = m.batch, tower.patches, None
        return tower.embed(m)

    def finish(m: Machine, x: Tensor) -> Tensor:
        x = tower.finish(m, x)
        if reads == "two":
            pooled[:] = [_of_two(m, x, m.batch * width)]
        m.named.append(pooled[0] if pooled else tower.pooled(m, x))  # the tower's output holds it, of use or not
        return x

    def classify(m: Machine, x: Tensor) -> Tensor:
        few = m.batch * width
        if reads == "two":
            assert after is not None
            return apply(m, classifier, after(m, pooled.pop()))
        first = ops.narrow(m, x, few) if reads in ("first", "both") else None
        patches = ops.narrow(m, x, x.numel - few) if reads in ("patches", "both") else x
        mean = ops.mean_last(m, patches, patches.numel // few) if reads != "first" else None
        if after is not None and mean is not None:
            mean = after(m, mean)
        del x, patches
        read = tuple(t for t in (first, mean) if t is not None)
        return apply(m, classifier, ops.concat(m, read) if len(read) > 1 else read[0])

    pooled: list[Tensor] = []
    return Model([Stage(embed, tower.blocks, finish)], classify, None, width, labels, causal=False, reads_all=True)


def _of_two(m: Machine, x: Tensor, few: int) -> Tensor:
    """`(x[:, 0] + x[:, 1]) / 2`."""
    return ops.scale(m, ops.add(m, ops.narrow(m, x, few), ops.narrow(m, x, few)))
