"""The ways of training that the oracle traces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Regime:
    """How a model is trained. Names are those of the record."""

    weights: str = "bfloat16"
    """dtype of the base weights."""
    autocast: bool = False
    """bf16 autocast around the forward pass and the loss."""
    attention: str = "sdpa"
    """eager or sdpa."""
    mask: bool = False
    """A padding mask with padding in it."""
    adapter: str = "none"
    """none = full fine-tuning; else the dtype of LoRA r=8 adapters on all linears."""
    dropout: float = 0.0
    """LoRA dropout."""
    checkpointing: str = "off"
    """off, non_reentrant or reentrant."""

    @property
    def name(self) -> str:
        """A compact, unique name."""
        tuning = "full" if self.adapter == "none" else f"lora-{self.adapter}-{self.dropout:g}"
        return ".".join(
            (
                self.weights + ("+autocast" if self.autocast else ""),
                self.attention,
                "mask" if self.mask else "nomask",
                tuning,
                self.checkpointing,
            )
        )

    @classmethod
    def parse(cls, name: str) -> Regime:
        """The regime of that name."""
        weights, attention, mask, rest = name.split(".", 3)
        tuning, checkpointing = rest.rsplit(".", 1)
        adapter, dropout = "none", 0.0
        if tuning != "full":
            _, adapter, text = tuning.split("-")
            dropout = float(text)
        dtype, _, autocast = weights.partition("+")
        return cls(dtype, bool(autocast), attention, mask == "mask", adapter, dropout, checkpointing)
