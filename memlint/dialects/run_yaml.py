"""`run.yaml`: a training run in the canonical keys themselves (`schema: memlint.run.v1`), dotted or nested."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native
from memlint.facts import Problem
from memlint.facts.keys import KEYS, check
from memlint.read.document import Document
from memlint.typed import Any

NAME = "run_yaml"
FRAGMENT = False
INTERPOLATES = False
CANONICAL = True
"""The facts are as stated: nothing is concluded from them."""
SCHEMA = "memlint.run.v1"


def recognise(document: Document) -> str | None:
    """The schema line."""
    return f"schema is {SCHEMA}" if document.text_at("schema") == SCHEMA else None


def facts(native: Native, context: Context | None = None) -> Facts:
    """The stated facts, checked; an unknown key or a value of the wrong kind is a problem and is left out."""
    context = context or Context()
    result: Facts = {}
    for key, fact in native.items():
        if key == "schema" or _is_inside(key) or _is_group(key, fact.value):
            continue
        try:
            result[key] = fact.with_value(check(key, fact.value)) if fact.known else fact
        except ValueError as error:
            span = fact.origin[0].span if fact.origin else None
            if span is not None:
                name = "unknown-key" if key not in KEYS else "wrong-value"
                context.note((Problem(name, str(error), span),))
    return {key: fact for key, fact in result.items() if not (fact.known and fact.value is None)}


def _is_inside(path: str) -> bool:
    """A part of a value that is a mapping or a list itself (`model.config.hidden_size`, `adapter.target_modules.0`)."""
    parts = path.split(".")
    return path not in KEYS and any(".".join(parts[:end]) in KEYS for end in range(1, len(parts)))


def _is_group(path: str, value: Any) -> bool:
    """A nested group of keys (`batch:`, or `compile:` with a `mode`, which alone is a switch)."""
    grouped = path not in KEYS or (isinstance(value, Mapping) and KEYS[path].kind == "bool")
    return grouped and any(key.startswith(path + ".") for key in KEYS)


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """The key itself."""
    return [(key, value)] if key in KEYS else None
