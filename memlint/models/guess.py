"""A guess from a model's name: another model of the same family and size. It says nothing about the details of the shape."""

from __future__ import annotations

import re

from memlint.models import catalogue

SIZE = r"(?<![a-z0-9.])(\d+x\d+(?:\.\d+)?b|a?\d+(?:[._]\d+)?[bm])(?![a-z0-9])"
"""A size in a folded name: 7b, 1.5b, 350m, 8x7b, a3b."""


def same_family_and_size(name: str) -> str:
    """The catalogue id whose name begins most like this one, of those that agree in family and every size; "" for none."""
    name = name.lower()
    sizes, family = _sizes(name), _family(name)
    if not sizes or not family:
        return ""
    best, most = "", (0, 0)
    for other, candidate in catalogue.own_names():
        plain = other.removeprefix("meta-")
        if not plain.startswith(family) or _family(plain) != family or _sizes(plain) != sizes:
            continue
        likeness = (_shared_beginning(_squeezed(name), _squeezed(other)), -len(other))
        if not best or likeness > most:
            best, most = candidate, likeness
    return best


def _sizes(name: str) -> frozenset[str]:
    return frozenset(size.replace("_", ".") for size in re.findall(SIZE, name))


def _family(name: str) -> str:
    """The word that a name begins with; `Meta-Llama` is Llama."""
    match = re.match(r"[a-z]{2,}", name.removeprefix("meta-").removeprefix("meta_"))
    return match.group() if match else ""


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.removeprefix("meta-"))


def _shared_beginning(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
