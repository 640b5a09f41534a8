"""The vision tower of a model whose decoder is Megatron-Core's.

Read in mcore-bridge f020e47 (`model/mm_gpts/utils.py`, `HuggingFaceVit`; `mm_gpt_model.py`): Hugging Face's own module, whole on every rank
of the first pipeline stage. What it computes is left out.
"""

from __future__ import annotations

from memlint.memory.build import Builder
from memlint.memory.families import vision_language
from memlint.memory.machine import start
from memlint.memory.result import CannotEstimate
from memlint.memory.sharding import Sharding
from memlint.memory.timeline import NotUniform
from memlint.models.architecture import Architecture


def tower_weights(b: Builder, a: Architecture) -> int:
    """Weights of the tower and of what brings its tokens to the decoder; 0 for a model without, or with one that has no page."""
    if "vision_config" not in a.config:
        return 0
    media = b.setup.media._replace(vision_trained=False, aligner_trained=False, language_trained=True)
    apart = b.setup._replace(stage="only", sharding=Sharding(), adapter="", head_only=False, media=media)
    alone = Builder(start(1, 1), apart, a.model_type)
    try:
        vision_language.build(alone, a, 0)
    except (CannotEstimate, NotUniform):
        return 0
    return sum(p.numel for p in alone.parameters if p.node is None)


def add_tower(b: Builder, weights: int) -> None:
    """Hold them on the first stage."""
    if weights and b.setup.stage in ("only", "first"):
        trained = b.setup.media.vision_trained and not b.setup.adapter
        b.make("visual", "embedding", (weights,), b.setup.weight_itemsize, trained, "weights")
