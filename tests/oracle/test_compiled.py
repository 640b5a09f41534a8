"""The record of compiled models is what the installed torch does."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest

from .compiled import RECORD, step
from .families import BY_NAME
from .record import DEPTHS

OLD = json.loads(RECORD.read_text())
SAMPLED = (
    ("llama", "bfloat16.sdpa.nomask.full.off.blocks"),
    ("llama", "bfloat16.sdpa.nomask.full.selective.blocks"),
    ("gpt2", "float32+autocast.sdpa.nomask.full.off.model"),
)


def test_the_record_states_the_installed_versions() -> None:
    """A record of other versions would be compared with the wrong code."""
    for name, recorded in OLD["versions"].items():
        assert version(name).split("+")[0] == recorded


@pytest.mark.parametrize(("name", "regime"), SAMPLED)
def test_the_record_is_reproduced(name: str, regime: str) -> None:
    """Tracing again gives the recorded bytes, at the smaller depth."""
    assert step(BY_NAME[name], DEPTHS[0], regime)[0] == OLD["families"][name]["regimes"][regime][0]
