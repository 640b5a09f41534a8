"""Keys that a framework would refuse, with the key that was probably meant.

Only for frameworks that stop at an unknown key. A key that resembles no accepted one is left alone: it may belong to a newer
version than the one that was read (`memlint/defaults/keys.json`).
"""

from __future__ import annotations

import json
import os
from functools import cache

from memlint.facts import Problem
from memlint.paths import text_of
from memlint.read.document import Document, MappingNode

BLOCKS = {
    "llama_factory": ("",),
    "litgpt": ("",),
    "ms_swift": ("",),
    "accelerate": ("",),
    "trl_yaml": ("",),
    "deepspeed": ("zero_optimization",),
}
"""Dialect -> the mappings whose keys the framework checks."""

CLOSE = 0.84
"""How alike two names must be (`difflib` ratio) to be taken for a slip of the pen."""

CLOSER = {"trl_yaml": 0.9}
"""The same where a script may add arguments of its own (`max_seq_len` beside `max_seq_length`)."""

MAX_CHECKED = 500
"""A mapping with more keys is not checked."""


@cache
def _accepted(name: str) -> frozenset[str]:
    file = os.path.join(os.path.dirname(os.path.dirname(__file__)), "defaults", "keys.json")
    return frozenset(json.loads(text_of(file)).get(name, ()))


def unknown_keys(document: Document, dialect: str) -> tuple[Problem, ...]:
    """A problem for each key that the dialect's framework refuses and that resembles an accepted one."""
    found: list[Problem] = []
    for block in BLOCKS.get(dialect, ()):
        node = document.at(block) if block else document.root
        accepted = _accepted(f"{dialect}:{block}" if block else dialect)
        if not isinstance(node, MappingNode) or len(node.entries) > MAX_CHECKED:
            continue
        for entry in node.entries:
            if entry.key in accepted or entry.inherited:
                continue
            from difflib import get_close_matches  # only where a key is not known: it takes a while to import

            meant = get_close_matches(entry.key, accepted - node.keys, 1, CLOSER.get(dialect, CLOSE))
            if meant:
                message = f"unknown key {entry.key!r}: did you mean {meant[0]!r}?"
                found.append(Problem("unknown-key", message, entry.key_span))
    return tuple(found)
