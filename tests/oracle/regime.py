"""The ways of training that the oracle traces."""

from __future__ import annotations

from dataclasses import dataclass, replace

TARGETS = ("all-linear", "default", "attention", "mlp", "ends", "saved")
"""What LoRA adapts: every linear; what PEFT takes where nothing is named; the linears of attention, or the others; those of attention and
the first and last module of a language model (embedding and head), which `saved` trains whole (`modules_to_save`) instead."""


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
    """none = full fine-tuning; else the dtype of LoRA r=8 adapters."""
    dropout: float = 0.0
    """LoRA dropout."""
    checkpointing: str = "off"
    """off, input_grads (off, but the embedding's output requires a gradient), non_reentrant or reentrant."""
    targets: str = "all-linear"
    """What the adapters are on: one of TARGETS."""

    @property
    def name(self) -> str:
        """A compact, unique name."""
        targets = "" if self.targets == "all-linear" else f"-{self.targets}"
        tuning = "full" if self.adapter == "none" else f"lora-{self.adapter}-{self.dropout:g}{targets}"
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
        dtype, _, autocast = weights.partition("+")
        regime = cls(dtype, bool(autocast), attention, mask == "mask", checkpointing=checkpointing)
        if tuning == "full":
            return regime
        _, adapter, dropout, *targets = tuning.split("-")
        return replace(regime, adapter=adapter, dropout=float(dropout), targets=targets[0] if targets else "all-linear")
