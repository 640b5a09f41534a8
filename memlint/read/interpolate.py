"""`${...}` in configuration values, as OmegaConf resolves it: references to other keys and to environment variables.

What cannot be resolved from the file alone is unknown, with the reason; nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memlint.facts import Fact, Status, default, unknown
from memlint.typed import Any

MAX_STEPS = 20
"""A longer chain of references is a cycle, for our purposes."""

_REFERENCE = r"\$\{([^${}]*)\}"
_PLACEHOLDER = r"\$\{?\w+\}?|\$\{\w+:?[-=][^}]*\}"
_PATH = r"^\.*[\w-]+(?:\.[\w-]+|\[\d+\])*$"


def interpolated(native: Mapping[str, Fact]) -> dict[str, Fact]:
    """The facts with every `${...}` resolved, or unknown where that is impossible.

    `${a.b}` and the relative `${.b}`, `${..b}` refer to other keys; `${oc.env:NAME,default}` is its default (overridable) or
    unknown; `${oc.select:a.b,default}` is the key, else the default. Other resolvers are the application's own: unknown.
    """
    return {path: _resolve(path, fact, native, 0) for path, fact in native.items()}


def placeholders(native: Mapping[str, Fact]) -> dict[str, Fact]:
    """For a framework that does not resolve `${...}`: such texts are filled in before it reads the file, so they are unknown."""
    result = dict(native)
    for path, fact in native.items():
        if fact.known and isinstance(fact.value, str) and re.fullmatch(_PLACEHOLDER, fact.value.strip()):
            result[path] = unknown(
                f"{fact.value} is filled in before the file is read", fact.origin[0].span if fact.origin else None
            )
    return result


def _resolve(path: str, fact: Fact, native: Mapping[str, Fact], step: int) -> Fact:
    if not (fact.known and isinstance(fact.value, str) and "${" in fact.value):
        return fact
    span = fact.origin[0].span if fact.origin else None
    if step > MAX_STEPS:
        return unknown(f"{fact.value} refers to itself", span)
    whole = re.fullmatch(_REFERENCE, fact.value.strip())
    if whole:
        target = _target(path, whole.group(1), native, step)
        return Fact(target.value, target.status, (*fact.origin, *target.origin), target.choices, target.reason, target.decided_by)
    text, status, origins = fact.value, fact.status, list(fact.origin)
    for _ in range(MAX_STEPS):
        match = re.search(_REFERENCE, text)
        if match is None:
            return Fact(text, status, tuple(origins))
        part = _target(path, match.group(1), native, step)
        if not part.known or isinstance(part.value, (dict, list)):
            return unknown(part.reason or f"{fact.value} is not a single value", span)
        status = Status.DEFAULT if part.status is Status.DEFAULT else status
        origins += part.origin
        text = text[: match.start()] + str(part.value) + text[match.end() :]
    return unknown(f"{fact.value} is nested too deeply", span)


def _target(path: str, inner: str, native: Mapping[str, Fact], step: int) -> Fact:
    """The fact that the inside of `${...}` means, as seen from the key at `path`."""
    name, colon, arguments = inner.partition(":")
    if not colon:
        return _key(path, inner.strip(), native, step) or unknown(f"${{{inner}}} is not in this file")
    first, comma, fallback = arguments.partition(",")
    first, fallback = first.strip(), fallback.strip()
    if name == "oc.env":
        if not comma:
            return unknown(f"comes from the environment variable {first}")
        return default(_scalar(fallback), f"unless the environment variable {first} is set")
    if name == "oc.select":
        found = _key(path, first, native, step)
        if found is not None:
            return found
        return default(_scalar(fallback), f"{first} is not set") if comma else unknown(f"{first} is not in this file")
    return unknown(f"${{{name}:...}} is the application's own")


def _key(path: str, reference: str, native: Mapping[str, Fact], step: int) -> Fact | None:
    if not re.match(_PATH, reference):
        return unknown(f"${{{reference}}} is not a plain reference")
    dots = len(reference) - len(reference.lstrip("."))
    target = reference.lstrip(".").replace("[", ".").replace("]", "")
    if dots:
        parents = path.split(".")[:-dots] if dots < len(path.split(".")) else []
        target = ".".join([*parents, target])
    found = native.get(target)
    return _resolve(target, found, native, step + 1) if found is not None else None


def _scalar(text: str) -> Any:
    """The default inside a resolver, typed as OmegaConf's grammar types it."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in ("null", ""):
        return None
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text.strip("'\"")
