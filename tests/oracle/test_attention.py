"""Which classes of transformers have no SDPA, as the memory program takes it."""

from __future__ import annotations

import transformers
from transformers.models.auto import modeling_auto

from memlint.memory.families import PAGES
from memlint.memory.versions import NO_SDPA

WITHOUT_ATTENTION = {"mamba", "falcon_mamba", "mamba2", "resnet", "convnext", "convnextv2", "efficientnet"}


def without_sdpa() -> set[str]:
    """The types with a page whose base class says so itself."""
    found = set()
    for model_type in PAGES:
        name = modeling_auto.MODEL_MAPPING_NAMES.get(model_type)
        name = name[0] if isinstance(name, tuple) else name
        if name is not None and not getattr(transformers, name)._supports_sdpa:
            found.add(model_type)
    return found


def test_types_without_sdpa() -> None:
    assert without_sdpa() - WITHOUT_ATTENTION == NO_SDPA
