"""Keys that a framework would refuse or pass over, with the key that was probably meant, and values of a wrong type.

A key that resembles no accepted one is left alone: it may belong to a newer version than the one that was read
(`memlint/defaults/keys.json`).
"""

from __future__ import annotations

import json
import os
from functools import cache

from memlint.dialects.derive import Facts, is_mistyped
from memlint.facts import Problem, Status
from memlint.paths import text_of
from memlint.read.document import Document, MappingNode

_ACTOR = (
    "actor_rollout_ref.actor",
    "actor_rollout_ref.actor.fsdp_config",
    "actor_rollout_ref.model",
    "actor_rollout_ref.rollout",
)

BLOCKS = {
    "axolotl": ("",),
    "llama_factory": ("",),
    "llama_factory_v1": ("",),
    "litgpt": ("", "train", "eval"),
    "lightning_cli": ("trainer",),
    "ludwig": ("trainer", "adapter", "quantization"),
    "open_instruct": ("",),
    "torchtune": ("",),
    "unsloth_studio": ("training", "lora"),
    "verl": ("data", "trainer", "model.fsdp_config"),
    "verl_ppo": ("data", "trainer", "algorithm", *_ACTOR),
    "ms_swift": ("",),
    "accelerate": ("",),
    "trl_yaml": ("",),
    "deepspeed": ("zero_optimization",),
}
"""Dialect -> the mappings whose keys the framework checks, or passes over without a word (Axolotl, torchtune)."""

CLOSE = 0.84
"""How alike two names must be (`difflib` ratio) to be taken for a slip of the pen."""

CLOSER = {"trl_yaml": 0.9, "axolotl": 0.9, "torchtune": 0.9, "open_instruct": 0.9}
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


def wrong_values(facts: Facts) -> tuple[Problem, ...]:
    """A problem for each value that is of another type than its setting; `auto` may be a word that is not known here."""
    found: list[Problem] = []
    for key, fact in facts.items():
        place = fact.origin[0].span if fact.origin else None
        told = any(problem.span == place for problem in found)
        if (
            fact.status is Status.UNKNOWN
            and place is not None
            and is_mistyped(fact.reason)
            and "'auto'" not in fact.reason
            and not told
        ):
            found.append(Problem("wrong-value", f"{key}: {fact.reason}", place))
    return tuple(found)
