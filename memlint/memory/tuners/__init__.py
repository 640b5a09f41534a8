"""PEFT's tuners: what each adds to a linear layer, and how the layer then runs.

A tuner is a function of the `Site`, the layer that it is put on: it makes its parameters there and returns the layer's new forward
pass. Each is read in peft 0.21.2 `tuners/<method>/layer.py` (and `model.py` for what all layers share); its options and their defaults
are the fields of PEFT's configuration class (`tuners/<method>/config.py`).
"""

from __future__ import annotations

from importlib import import_module

from memlint.memory.tuners.site import Tuner

MODULES = {
    "low_rank": "lora dora rslora qalora pissa olora lora-fa loraplus mica adalora deft delora osf gralora",
    "vectors": "ia3 beft miss bone road",
    "banks": "vera pvera randlora vblora unilora lily tinylora poly",
    "dense": "hira loha lokr peanut glora supertuning shira",
    "spectral": "fourierft waveft c3a",
    "rotations": "oft boft hra psoft",
    "subspaces": "adamss frod",
}
"""Module -> the methods it has."""

HOMES = {method: module for module, methods in MODULES.items() for method in methods.split()}

ALIASES = {"rslora": "lora", "pissa": "lora", "olora": "lora", "loraplus": "lora", "bone": "miss"}


def tuner_of(method: str) -> Tuner:
    """The tuner of a method; LoRA's for one that is not described (X-LoRA, Shadow), which widens the estimate."""
    name = ALIASES.get(method, method).replace("-", "_") if method in HOMES else "lora"
    tuner: Tuner = getattr(import_module(f"memlint.memory.tuners.{HOMES.get(method, HOMES['lora'])}"), name)
    return tuner
