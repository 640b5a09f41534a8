"""Image classifiers: a vision transformer and a linear on what it says of each image (transformers 5.24)."""

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

READS = {"clip": "patches", "siglip": "all", "dinov2": "both", "dinov2_with_registers": "both", "beit": "patches"}
"""What the classifier reads: the mean of the patches, of all positions, or both the first token and the mean; else the first token."""


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Tower and classifier."""
    b.enter_layer(-1)
    inner = a.config.get("vision_config")  # a dual encoder's
    config = inner if isinstance(inner, Mapping) else a.config
    reads = READS.get(a.model_type, "first")
    tower = tower_of(b, config, str(config.get("model_type")), b.setup.media.image_size, layers, with_layers=True)
    b.enter_layer(-1)
    width, labels = tower.hidden, b.setup.num_labels
    after = norm_of(b, STYLES["beit"], "layernorm", width) if config.get("use_mean_pooling") else None
    classifier = b.linear("classifier", 2 * width if reads == "both" else width, labels, bias=True)

    def embed(m: Machine, context: Tensor | None) -> Tensor:
        tower.images, m.sequence, m.mask = m.batch, tower.patches, None
        return tower.embed(m)

    def finish(m: Machine, x: Tensor) -> Tensor:
        x = tower.finish(m, x)
        m.named.append(tower.pooled(m, x))  # of no use here, but the tower's output holds it
        return x

    def classify(m: Machine, x: Tensor) -> Tensor:
        few = m.batch * width
        first = ops.narrow(m, x, few) if reads in ("first", "both") else None
        patches = ops.narrow(m, x, x.numel - few) if reads in ("patches", "both") else x
        mean = ops.mean_last(m, patches, patches.numel // few) if reads != "first" else None
        if after is not None and mean is not None:
            mean = after(m, mean)
        del x, patches
        read = tuple(t for t in (first, mean) if t is not None)
        return apply(m, classifier, ops.concat(m, read) if len(read) > 1 else read[0])

    return Model([Stage(embed, tower.blocks, finish)], classify, None, width, labels, causal=False, reads_all=True)
