"""Every entry of the catalogue, built by the transformers that is installed: its stored parameters are those of the model."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import transformers

from benchmarks.models import built, entries

BY_TYPE: dict[str, list[dict[str, Any]]] = defaultdict(list)
for row in entries():
    BY_TYPE[row["config"]["model_type"]].append(row)

OTHER_CODE = {
    "baichuan", "chatglm", "deepseek", "internlm", "internlm2", "kimi_k2", "kimi_k3", "mimo", "minicpm", "minimax_m3", "nemotron-nas",
    "orion", "phi3_v", "phi3small", "qwen",
}  # fmt: skip
"""Types whose code is in their repositories; Gemma 3n's tower is built by timm, which is not among the requirements."""


DIFFUSION = {row["config"]["model_type"] for row in entries() if row.get("library") == "diffusers"}
"""Networks of diffusers, which is not among the requirements either."""


@pytest.mark.parametrize("kind", sorted(BY_TYPE.keys() - OTHER_CODE - DIFFUSION - {"gemma3n"}))
def test_the_stored_parameters_are_those_of_the_built_model(kind: str) -> None:
    transformers.logging.set_verbosity_error()
    wrong = {
        row["id"]: (row.get("params"), real) for row in BY_TYPE[kind] if row.get("params") != (real := built(row, transformers))
    }
    assert wrong == {}


def test_what_transformers_has_no_class_for_stays_listed() -> None:
    assert all(built(row, transformers) is None for kind in OTHER_CODE for row in BY_TYPE[kind])
