"""Qwen3.5: a dense decoder with linear attention in most layers (transformers 5.24 `models/qwen3_5/modeling_qwen3_5.py`)."""

from __future__ import annotations

from memlint.memory.build import Builder
from memlint.memory.families.linear_attention import hybrid_attention
from memlint.memory.families.llama import decoder
from memlint.memory.families.llama_styles import Style
from memlint.memory.families.model import Model
from memlint.models.architecture import Architecture


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """The text decoder."""
    return decoder(b, a, layers, Style(norm="gemma"), hybrid_attention)
