"""An estimate counts the parameters that the catalogue stores: those of the model built on the meta device."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from benchmarks.models import counted_by_page, entries, objective_of, own_class
from memlint.memory.families import PAGES


def headed(row: dict[str, Any]) -> bool:
    """Whether the counted class has the head that is trained; a backbone's parameters are not those of a run."""
    name = own_class(row)
    return bool(row.get("params")) and not name.endswith("ForPreTraining") and (not name.endswith("Model") or "LMHead" in name)


BY_TYPE: dict[str, list[dict[str, Any]]] = defaultdict(list)
for entry in entries():
    if entry["config"]["model_type"] in PAGES and headed(entry):
        BY_TYPE[entry["config"]["model_type"]].append(entry)


@pytest.mark.parametrize("kind", sorted(BY_TYPE))
def test_the_page_counts_what_the_class_has(kind: str) -> None:
    """The smallest entry of the type, one in the middle, the largest (`python -m benchmarks.models --meta` takes all)."""
    rows = sorted(BY_TYPE[kind], key=lambda row: int(row["params"]))
    for row in {row["id"]: row for row in (rows[0], rows[len(rows) // 2], rows[-1])}.values():
        labels = int(row["config"].get("num_labels") or 2)
        assert counted_by_page(row, objective_of(own_class(row)), labels) == row["params"], row["id"]
