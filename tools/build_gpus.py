"""Write `memlint/gpus/data/gpus.json` from `tools/sources/gpus.json` and `tools/sources/gpus_more.json`.

    python tools/build_gpus.py

The first source holds what was seen (totals that torch reports, per card, with the evidence). The second adds published
specifications, cards that were not seen (capacity as that of the card they are like: confidence "low"), and the CUDA
contexts. The result is one card per line, deterministic.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from memlint.gpus.names import keys

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "memlint/gpus/data/gpus.json"
GIB, MIB = 1024**3, 1024**2

AMD_CAPABILITY = {"gfx90a": [9, 0], "gfx942": [9, 4]}
"""What `torch.cuda.get_device_capability` says of these on ROCm."""


def aliases(card: dict[str, Any], taken: set[str]) -> list[str]:
    """The other names of a card without remarks in brackets; a name that is a card of its own is dropped."""
    plain = [re.sub(r"\s*\([^)]*\)", "", alias).strip() for alias in card["aliases"]]
    return sorted({alias for alias in plain if alias and alias not in taken and alias != card["name"]})


def context(multiprocessors: int, amd: bool, rate: dict[str, float]) -> list[int]:
    """Bytes of a process's context: low, expected, high. On ROCm nothing was seen: up to 1 GiB."""
    low, expected, high = (int(multiprocessors * rate[name] * MIB) for name in ("low", "expected", "high"))
    return [low, expected, max(high, GIB) if amd else high]


def main() -> None:
    """Merge the two sources."""
    seen = json.loads((HERE / "sources/gpus.json").read_text(encoding="utf-8"))
    more = json.loads((HERE / "sources/gpus_more.json").read_text(encoding="utf-8"))
    rate = more["context"]["mib_per_multiprocessor"]
    by_name = {card["name"]: card for card in seen["gpus"]}
    own = {alias for card in more["further"] for alias in card["aliases"]}
    platforms: dict[str, list[str]] = {}
    for platform, what in seen["platforms"].items():
        platforms.setdefault(what["gpu"], []).append(platform)
    for name, others in more["colloquial"].items():
        platforms.setdefault(name, []).extend(others)

    cards = []
    for name, (memory_gb, multiprocessors) in more["specifications"].items():
        card = by_name[name]
        cards.append((name, card, memory_gb, multiprocessors, aliases(card, own), ""))
    for card in more["further"]:
        others = sorted(card["aliases"])
        cards.append((card["name"], by_name[card["like"]], card["memory_gb"], card["multiprocessors"], others, card["like"]))

    lines = []
    for name, card, memory_gb, multiprocessors, others, like in cards:
        capability = card["compute_capability"]
        amd = capability in AMD_CAPABILITY
        reserve = max((card["nvidia_smi_total_mib"] or {"": 0}).values()) * MIB - int(card["plan_capacity_gib"] * GIB)
        line = {
            "name": name,
            "aliases": sorted({*others, *platforms.get(name, ())}),
            "memory_gb": memory_gb,
            "capacity_bytes": int(card["plan_capacity_gib"] * GIB),
            "compute_capability": AMD_CAPABILITY[capability] if amd else [int(part) for part in capability.split(".")],
            "bf16": card["bf16"] == "native",
            "context": context(multiprocessors, amd, rate),
            "driver_bytes": max(reserve, 0),
            "confidence": "low" if like else card["confidence"],
            "common": name in more["common"],
            "source": f"as {like}" if like else "; ".join(card["evidence"]),
        }
        line["keys"] = list(dict.fromkeys(keys((name, *line["aliases"]))))
        lines.append(json.dumps(line, ensure_ascii=True))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="ascii", newline="\n")
    print(f"{len(lines)} cards, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
