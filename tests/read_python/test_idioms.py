"""Small programs as people write them: what the interpreter says of `x` is what Python computes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from memlint.facts import Status
from memlint.read.pyeval.commands import CommandLines
from memlint.read.pyeval.script import run_script
from memlint.source import Kind, Source

TEXT = (Path(__file__).parent / "idioms.txt").read_text(encoding="utf-8")
IDIOMS = dict(re.findall(r"^# --- (\w+)\n(.*?)(?=^# ---|\Z)", TEXT, re.MULTILINE | re.DOTALL))

NOT_KNOWN = {"generator_list", "while", "while_break", "try_ok", "try_keyerror", "try_valueerror", "try_else_finally", "json_roundtrip",
             "defaultdict", "attrgetter", "product", "len_cls", "re_search", "re_sub", "new", "iter_cls", "splat_list", "exitstack",
             "deep_recursion"}  # fmt: skip
"""What is not computed: it must not be claimed to be known. The set may only shrink."""


def interpreted(code: str) -> Any:
    """The fact that the interpreter has of `x`."""
    return run_script(Source("t.py", Kind.PYTHON, code), CommandLines()).modules["t.py"].scope.slots["x"]


def computed(code: str) -> Any:
    """The `x` of Python itself."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": "t.py"}
    exec(compile(code, "t.py", "exec"), namespace)
    return namespace["x"]


@pytest.mark.parametrize("name", IDIOMS)
def test_what_is_known_is_what_python_computes(name: str) -> None:
    fact = interpreted(IDIOMS[name])
    assert (fact.status is Status.FIXED) is (name not in NOT_KNOWN), fact.reason
    if name not in NOT_KNOWN:
        assert fact.value == computed(IDIOMS[name])
