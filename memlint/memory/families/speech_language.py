"""Voxtral: Whisper's encoder and a projector in front of a text decoder that has a page of its own.

Read in transformers 5.24 `models/voxtral/modeling_voxtral.py`. Each sample of text has one sound of full length (30 seconds).
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.memory import ops
from memlint.memory.build import Builder
from memlint.memory.families.encoder_decoder import STYLES, speech_encoder
from memlint.memory.families.model import Block, Model
from memlint.memory.families.vision import Tower
from memlint.memory.families.vision_language import decoder_of, text_of, with_features
from memlint.memory.linear import apply
from memlint.memory.machine import Machine
from memlint.memory.tensor import Tensor
from memlint.models import from_config
from memlint.models.architecture import Architecture


def build(b: Builder, a: Architecture, layers: int) -> Model:
    """Tower, projector and decoder."""
    config, media = a.config.get("audio_config"), b.setup.media
    audio = from_config(config if isinstance(config, Mapping) else {}, a.name)
    hidden, wide, length = audio.hidden_size or 1280, text_of(a).hidden_size or 0, int(audio.config["max_source_positions"])
    inner = audio.intermediate_size or 4 * hidden
    b.enter_layer(-1)
    b.frozen = not media.vision_trained
    stage = speech_encoder(b, audio, STYLES["voxtral_encoder"], hidden, audio.layers or 0, with_layers=False)
    b.frozen = not media.aligner_trained
    first, second = b.linear("linear_1", inner, wide), b.linear("linear_2", wide, wide)
    b.frozen = not media.language_trained
    model = decoder_of(b, a, layers)
    b.frozen = False
    text = b.machine.sequence

    def embed(m: Machine) -> Tensor:
        kept = m.mask, m.shared
        x = stage.embed(m, None)
        m.sequence, (m.mask, m.shared) = text, kept
        return x

    def project(m: Machine, x: Tensor) -> Tensor:
        return apply(m, second, ops.unary(m, apply(m, first, x)))

    tower = Tower(hidden, embed, [_apart(block, length) for block in stage.blocks], stage.finish, patches=length)
    tower.named = False
    model.stages[0] = with_features(b, tower, project, None, False, model.stages[0], pieces=1)
    return model


def _apart(block: Block, length: int) -> Block:
    """A block on the frames of the sound, not on the tokens."""

    def apart(m: Machine, x: Tensor, context: Tensor | None) -> Tensor:
        kept = m.sequence, m.mask
        m.sequence, m.mask = length, None
        x = block(m, x, context)
        m.sequence, m.mask = kept
        return x

    return apart
