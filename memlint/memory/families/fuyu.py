"""Fuyu: patches of an image enter Persimmon's decoder through one linear layer, without a tower.

Read in transformers 5.24 `models/fuyu/modeling_fuyu.py`.
"""

from __future__ import annotations

from memlint.memory.build import Builder
from memlint.memory.families.model import Model
from memlint.memory.families.vision import Tower
from memlint.memory.families.vision_language import decoder_of, text_of, with_features
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor
from memlint.models.architecture import Architecture


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Embedder of patches and decoder."""
    hidden, patch, media = text_of(a).hidden_size or 0, int(a.config.get("patch_size") or 30), b.setup.media
    width = int(a.config.get("num_channels") or 3) * patch * patch
    patches = ((media.image_size or int(a.config.get("image_size") or 300)) // patch) ** 2
    b.enter_layer(-1)
    b.frozen = not media.aligner_trained
    linear = b.linear("vision_embed_tokens", width, hidden, bias=True)
    b.frozen = not media.language_trained
    model = decoder_of(b, a, layers)
    b.frozen = False
    pixels: list[Tensor] = []

    def embed(m: Machine) -> Tensor:
        pixels[:] = [m.new(tower.rows * width, b.setup.weight_itemsize)]  # the batch holds them as long as the step lasts
        return apply(m, linear, pixels[0])

    tower = Tower(hidden, embed, [], lambda m, x: x, patches=patches)
    if media.images:
        model.stages[0] = with_features(b, tower, lambda m, x: x, None, False, model.stages[0])
    return model
