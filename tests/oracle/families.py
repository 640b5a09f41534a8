"""Tiny configs, one per model type, with sizes that keep the terms of a formula apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .regime import Regime

BATCH, SEQUENCE, VOCAB = 3, 160, 1000

_LLAMA = dict(
    hidden_size=64,
    intermediate_size=176,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=VOCAB,
    max_position_embeddings=512,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
_WIDE = dict(_LLAMA, head_dim=24)
_BERT = dict(
    hidden_size=64,
    intermediate_size=176,
    num_attention_heads=4,
    vocab_size=VOCAB,
    max_position_embeddings=512,
    pad_token_id=0,
)


@dataclass(frozen=True)
class Family:
    """A model type: its head, its tiny config without the depth, and the config keys that hold the depth."""

    model_type: str
    head: str = "causal_lm"
    config: Mapping[str, Any] = field(default_factory=dict)
    depth: tuple[str, ...] = ("num_hidden_layers",)
    layer_list: Callable[[int], Mapping[str, Any]] | None = None
    """Config keys that list something per layer, from the number of layers."""

    without: frozenset[str] = frozenset()
    """What the class does not support: an attention implementation, `lora`, or `checkpointing`."""

    def runs(self, regime: Regime) -> bool:
        """Whether the class supports a regime."""
        return not (
            regime.attention in self.without
            or ("lora" in self.without and regime.adapter != "none")
            or ("checkpointing" in self.without and regime.checkpointing != "off")
        )

    def at_depth(self, layers: int) -> dict[str, Any]:
        """The config with that many layers."""
        config = {**self.config, **{key: layers for key in self.depth}}
        return {**config, **(self.layer_list(layers) if self.layer_list else {})}


FAMILIES: tuple[Family, ...] = (
    Family("llama", config=_WIDE),
    Family("qwen2", config=_LLAMA),
    Family("gpt2", config=dict(n_embd=64, n_head=4, n_inner=176, vocab_size=VOCAB, n_positions=512, bos_token_id=1, eos_token_id=2), depth=("n_layer",)),
    Family("bert", "sequence_classification", _BERT),
    Family("mistral", config=dict(_WIDE, sliding_window=None)),
    Family("qwen3", config=_WIDE),
    Family("gemma", config=_WIDE),
    Family("gemma2", config=dict(_WIDE, sliding_window=4096, query_pre_attn_scalar=24)),
)
BY_TYPE = {family.model_type: family for family in FAMILIES}
