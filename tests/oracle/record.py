"""Write `traces/`: what real models keep for backward, a file for each family, by regime.

`python -m tests.oracle.record [NAME ...]` re-traces those families (all without an argument); with `--missing`, only the regimes that their
files lack.

A file: `versions`; `shape` (batch, sequence); `model_type`, `head`, `config` (without the depth), `depth` (the config keys that hold it,
dotted when nested), `frozen` (the part that is not trained), `media` (elements of the images or the sound of a batch, which the figures
leave out), `image_size` where the config has none, `lists` (config keys that list something per layer, by number of layers),
`targets` (module names by set of targets), `parameters` (of the models with 2 and 3 layers) and `regimes[name]`. A regime's name is
`weights[+autocast].attention.mask.tuning.checkpointing`; its value holds, for 2 and for 3 layers, the list `FIELDS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from .families import FAMILIES
from .family import BATCH, SEQUENCE, Family
from .inputs import TILES, inputs
from .recorded import FIELDS, TRACES
from .regime import Regime
from .trace import Step, named_targets, step

DEPTHS = (2, 3)

_FULL = [
    Regime(weights, autocast, attention, mask)
    for weights, autocast in (("float32", False), ("bfloat16", False), ("float32", True), ("bfloat16", True))
    for attention in ("sdpa", "eager")
    for mask in (False, True)
]
_CHECKPOINTED = [
    Regime(weights, autocast, adapter=adapter, checkpointing=mode)
    for weights, autocast, adapter in (
        ("bfloat16", False, "none"),
        ("float32", True, "none"),
        ("bfloat16", True, "float32"),
    )
    for mode in ("non_reentrant", "reentrant")
]
_LORA = [
    Regime("bfloat16", True, adapter="float32"),
    Regime("bfloat16", True, adapter="float32", dropout=0.05),
    Regime("bfloat16", True, mask=True, adapter="float32", dropout=0.05),
    Regime("bfloat16", True, attention="eager", adapter="float32"),
    Regime("bfloat16", True, adapter="bfloat16", dropout=0.05),
    Regime("bfloat16", False, adapter="float32"),
    Regime("bfloat16", False, adapter="bfloat16"),
    Regime("bfloat16", False, adapter="bfloat16", dropout=0.05),
    Regime("float32", True, adapter="float32"),
    Regime("float32", False, adapter="float32"),
]
_PAIRS = [
    Regime("bfloat16", True, adapter="float32", dropout=0.05, targets="default"),
    Regime("bfloat16", False, "eager", True, "bfloat16", checkpointing="non_reentrant", targets="default"),
    Regime("bfloat16", True, "eager", True, "float32", checkpointing="reentrant", targets="attention"),
    Regime("float32", True, mask=True, adapter="float32", dropout=0.05, targets="attention"),
    Regime("bfloat16", False, adapter="bfloat16", dropout=0.05, targets="mlp"),
    Regime("bfloat16", True, mask=True, adapter="float32", checkpointing="non_reentrant", targets="mlp"),
    Regime("bfloat16", True, adapter="float32", dropout=0.05, checkpointing="input_grads", targets="mlp"),
    Regime("bfloat16", True, adapter="float32", dropout=0.05, targets="ends"),
    Regime("bfloat16", False, "eager", True, "bfloat16", checkpointing="reentrant", targets="ends"),
    Regime("bfloat16", True, mask=True, adapter="bfloat16", targets="saved"),
    Regime("float32", False, adapter="float32", dropout=0.05, checkpointing="non_reentrant", targets="saved"),
    Regime("bfloat16", False, mask=True, adapter="float32", dropout=0.05, checkpointing="reentrant"),
    Regime("float32", True, "eager", adapter="float32", checkpointing="non_reentrant"),
    Regime("bfloat16", False, "eager", adapter="bfloat16", dropout=0.05, checkpointing="non_reentrant"),
    Regime("bfloat16", True, "eager", True, checkpointing="non_reentrant"),
    Regime("bfloat16", False, "eager", True, checkpointing="reentrant"),
]
"""Not every combination, but every value of one choice with most values of each other."""

_SHARES = 4
_WIDE = ("llama", "gpt2", "bert", "gpt_neo", "falcon", "opt", "deberta-v2", "deepseek_v3", "t5", "vit", "whisper", "qwen2_vl")
"""Families, one of each structure, that are traced in all pairs; each other takes one of so many shares of them."""

REGIMES: tuple[Regime, ...] = (*_FULL, *_CHECKPOINTED, *_LORA, *_PAIRS)


def regimes_of(family: Family) -> list[Regime]:
    """What is recorded of a family."""
    share = sum(family.name.encode()) % _SHARES
    left_out = () if family.name in _WIDE else [r for i, r in enumerate(_PAIRS) if i % _SHARES != share]
    return family.regimes(r for r in REGIMES if r not in left_out)


def fields(traced: Step) -> list[int]:
    """The recorded numbers of one step, in the order of FIELDS."""
    return [getattr(traced, name) for name in FIELDS]


def media(family: Family) -> int:
    """Elements of what a batch holds beside tokens."""
    with torch.device("meta"):
        given = inputs(family, Regime())
    return sum(t.numel() for t in given.values() if isinstance(t, torch.Tensor) and t.is_floating_point())


def trace_family(family: Family, old: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one family; `old`: what is recorded of it and stays."""
    regimes: dict[str, list[list[int]]] = {}
    parameters: list[int] = old.get("parameters", [])
    for regime in regimes_of(family):
        if regime.name in old.get("regimes", ()):
            regimes[regime.name] = old["regimes"][regime.name]
            continue
        steps = [step(family, depth, regime) for depth in DEPTHS]
        regimes[regime.name] = [fields(traced) for traced in steps]
        if regime.adapter == "none":
            parameters = [traced.parameters for traced in steps]
    return {
        "versions": {name: version(name).split("+")[0] for name in ("torch", "transformers", "peft")},
        "shape": {"batch": BATCH, "sequence": SEQUENCE},
        "model_type": family.model_type,
        "head": family.head,
        "config": dict(family.config),
        "depth": list(family.depth),
        **({"frozen": family.frozen} if family.frozen else {}),
        **({"media": elements} if (elements := media(family)) else {}),
        **({"tiles": TILES[family.model_type]} if family.model_type in TILES else {}),
        **({"image_size": family.image_size} if family.image_size else {}),
        **({"lists": {str(n): family.layer_list(n) for n in DEPTHS}} if family.layer_list else {}),
        **({"targets": targets} if (targets := named_targets(family)) else {}),
        "parameters": parameters,
        "regimes": regimes,
    }


def write(record: dict[str, Any], path: Path) -> None:
    """One line per regime, so that differences are readable."""

    def dump(value: Any, indent: int) -> str:
        if isinstance(value, dict) and value:
            pad = " " * (indent + 1)
            inner = ",\n".join(f"{pad}{json.dumps(k)}: {dump(v, indent + 1)}" for k, v in value.items())
            return "{\n" + inner + "\n" + " " * indent + "}"
        return json.dumps(value)

    path.write_text(dump(record, 0) + "\n")


def main(names: list[str]) -> None:
    """Trace the named families (all without a name) and write what is found."""
    missing, names = "--missing" in names, [name for name in names if name != "--missing"]
    for family in FAMILIES:
        path = TRACES / f"{family.name}.json"
        if not names or family.name in names:
            print(family.name, flush=True)
            old = json.loads(path.read_text()) if missing and path.exists() else {}
            try:
                write(trace_family(family, old), path)
            except Exception as error:  # the others are worth having
                print(f"  failed: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
