"""Keys that a framework would refuse or pass over, with the key that was probably meant, and values of a wrong type.

A key that resembles no accepted one is left alone: it may belong to a newer version than the one that was read
(`memlint/defaults/keys.json`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cache

from memlint.dialects.derive import Facts, is_mistyped
from memlint.facts import Fact, Problem, Status
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
    "megatron_yaml": ("MODEL_ARGS",),
    "sd_scripts": ("", "*"),
    "torchtitan": ("job", "profiling", "metrics", "model", "optimizer", "lr_scheduler", "training", "parallelism", "checkpoint",
                   "compile", "activation_checkpoint", "float8", "comm", "fault_tolerance", "experimental", "validation", "debug",
                   "memory_estimation"),
}  # fmt: skip
"""Dialect -> the mappings whose keys the framework checks, or passes over without a word (Axolotl, torchtune). `*` is every
section, whose name means nothing."""

FLAGS = {
    "megatron": ("",),
    "ms_swift": ("",),
    "sd_scripts": ("",),
    "torchtitan": ("training", "parallelism", "compile", "comm", "debug"),
}
"""Dialect -> the sections whose flags are known for every release; "" is for flags without a section."""

LISTS = {"megatron_yaml:MODEL_ARGS": "megatron", "sd_scripts:*": "sd_scripts"}
"""Mappings that share the names of another entry of `keys.json`."""

CLOSE = 0.84
"""How alike two names must be (`difflib` ratio) to be taken for a slip of the pen."""

CLOSER = {"trl_yaml": 0.9, "axolotl": 0.9, "torchtune": 0.9, "open_instruct": 0.9, "megatron": 0.9, "megatron_yaml": 0.9,
          "sd_scripts": 0.9}  # fmt: skip
"""The same where a script may add arguments of its own (`max_seq_len` beside `max_seq_length`)."""

MAX_CHECKED = 500
"""A mapping with more keys is not checked."""


@cache
def _accepted(dialect: str, block: str) -> frozenset[str]:
    name = f"{dialect}:{block}" if block else dialect
    return frozenset(_lists().get(LISTS.get(name, name), ()))


@cache
def _lists() -> dict[str, list[str]]:
    file = os.path.join(os.path.dirname(os.path.dirname(__file__)), "defaults", "keys.json")
    lists: dict[str, list[str]] = json.loads(text_of(file))
    return lists


def unknown_keys(document: Document, dialect: str) -> tuple[Problem, ...]:
    """A problem for each key that the dialect's framework refuses and that resembles an accepted one."""
    found: list[Problem] = []
    blocks = BLOCKS.get(dialect, ())
    tables = [entry.value for entry in document.mapping.entries if isinstance(entry.value, MappingNode)]
    sections = tables if "*" in blocks else []
    for block in blocks:
        accepted = _accepted(dialect, block)
        for node in sections if block == "*" else [document.at(block) if block else document.root]:
            if not isinstance(node, MappingNode) or len(node.entries) > MAX_CHECKED:
                continue
            for entry in node.entries:
                if entry.inherited or entry.value in sections:
                    continue
                meant = _meant(entry.key, accepted, node.keys, dialect)
                if meant:
                    found.append(Problem("unknown-key", f"unknown key {entry.key!r}: did you mean {meant!r}?", entry.key_span))
    return tuple(found)


def unknown_flags(words: Iterable[Fact], dialect: str) -> tuple[Problem, ...]:
    """The same for the flags of a launch (`--key value`, `--section.key=value`)."""
    written = {fact.value.partition("=")[0]: fact for fact in words if isinstance(fact.value, str) and fact.value[:2] == "--"}
    found: list[Problem] = []
    for flag, fact in written.items():
        section, dot, _ = flag[2:].rpartition(".")
        if section not in FLAGS.get(dialect, ()) or not fact.origin or fact.origin[0].span is None:
            continue
        prefix = f"--{section}{dot}"
        others = frozenset("--" + other[len(prefix) :] for other in written if other.startswith(prefix))
        meant = _meant("--" + flag[len(prefix) :], _accepted(dialect, section), others, dialect)
        if meant:
            message = f"unknown flag {flag!r}: did you mean {prefix + meant[2:]!r}?"
            found.append(Problem("unknown-key", message, fact.origin[0].span))
    return tuple(found)


def _meant(key: str, accepted: frozenset[str], others: frozenset[str], dialect: str) -> str:
    """The accepted name that a key resembles, spelled like the key (`a_b`, `--a-b`); "" for an accepted key, and for a strange one."""
    name = _plain(key)
    if name in accepted:
        return ""
    from difflib import get_close_matches  # only where a key is not known: it takes a while to import

    meant = get_close_matches(name, accepted - {_plain(other) for other in others}, 1, CLOSER.get(dialect, CLOSE))
    if not meant:
        return ""
    return f"--{meant[0].replace('_', '-') if '-' in key[2:] else meant[0]}" if key.startswith("--") else meant[0]


def _plain(key: str) -> str:
    """A flag as the setting that it is."""
    return key[2:].replace("-", "_") if key.startswith("--") else key


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
