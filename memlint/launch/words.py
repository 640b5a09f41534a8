"""Command-line words: options with their values, and the words that are left."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from memlint.facts import Fact, Status


def text(word: Fact) -> str:
    """The word as text; of an unknown word the part before its unknown piece."""
    return word.value if isinstance(word.value, str) else ""


def basename(word: Fact) -> str:
    """The last part of a path."""
    return text(word).rpartition("/")[2] if word.known else ""


@dataclass(slots=True)
class Options:
    """Options of a launcher. Names without dashes, `-` as `_`. A flag without value is True."""

    values: dict[str, Fact] = field(default_factory=dict)
    rest: tuple[Fact, ...] = ()
    opaque: bool = False
    """A word among them is not known at all, so an option that is not here may still be given."""

    def get(self, *names: str) -> Fact | None:
        """The first of these options that is given."""
        return next((self.values[name] for name in names if name in self.values), None)


def canonical(name: str) -> str:
    """`--nproc-per-node` as `nproc_per_node`."""
    return name.lstrip("-").replace("-", "_")


def options(words: Sequence[Fact], flags: frozenset[str]) -> Options:
    """Options up to the first other word; `flags` take no value."""
    found = Options()
    index = 0
    while index < len(words):
        word = words[index]
        written = text(word)
        if written == "--":
            found.rest = tuple(words[index + 1 :])
            break
        if written.startswith("-") and len(written) > 1 and not _number(written):
            name, equals, value = written.partition("=")
            key = canonical(name)
            if equals:
                found.values[key] = word._replace(value=value)
            elif key in flags or index + 1 >= len(words):
                found.values[key] = word._replace(value=True)
            else:
                index += 1
                found.values[key] = words[index]
        elif word.status is Status.UNKNOWN and not written:
            found.opaque = True
        else:
            found.rest = tuple(words[index:])
            break
        index += 1
    return found


def _number(written: str) -> bool:
    return written[1:2].isdigit() or written[1:2] == "."


OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w.@/]*=")
"""A word that is a setting of its own (`batch_size=4`, `+trainer.x=1`), not another value of the option before it."""

DELETION = re.compile(r"~[A-Za-z_][\w.@/]*")
"""A setting that is taken out of the file (torchtune, Hydra)."""


def _own(written: str) -> bool:
    return OVERRIDE.match(written) is not None or DELETION.fullmatch(written) is not None


def arguments(words: Iterable[Fact]) -> tuple[dict[str, Fact], tuple[Fact, ...]]:
    """`--key value`, `--key=value`, `--key a b`, `--key` and `key=value` as native arguments, and the other words.

    A key without a value is True. Several values are a list. Hydra's `+key=` and `++key=` count as `key=`, `~key` is a null.
    """
    found: dict[str, Fact] = {}
    rest: list[Fact] = []
    key = ""
    several: list[Fact] = []

    def close() -> None:
        if key and several:
            found[key] = several[0] if len(several) == 1 else _list(several)

    for word in words:
        written = text(word)
        if written.startswith("--") and len(written) > 2:
            close()
            several = []
            name, equals, value = written[2:].partition("=")
            key = name.replace("-", "_")
            found[key] = word._replace(value=value) if equals else word._replace(value=True)
            if equals:
                key = ""
        elif key and not (written.startswith("-") and not _number(written)) and not (several and _own(written)):
            several.append(word)
        elif DELETION.fullmatch(written):
            close()
            key, several = "", []
            found[written[1:]] = word._replace(value=None)
        elif OVERRIDE.match(written):
            close()
            key, several = "", []
            name, _, value = written.lstrip("+").partition("=")
            found[name] = word._replace(value=value)
        else:
            close()
            key, several = "", []
            rest.append(word)
    close()
    return {name: _typed(fact) for name, fact in found.items()}, tuple(rest)


def _list(words: list[Fact]) -> Fact:
    unknown = next((word for word in words if not word.known), None)
    if unknown is not None:
        return unknown
    weakest = next((word for word in words if word.status is Status.DEFAULT), words[0])
    return weakest._replace(value=[word.value for word in words], origin=words[0].origin)


_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}


def _typed(fact: Fact) -> Fact:
    """Text as the number, boolean or list that configuration parsers make of it."""
    if not fact.known or not isinstance(fact.value, str):
        return fact if fact.known else fact._replace(value=None)
    value = fact.value.strip()
    if value in _WORDS:
        return fact._replace(value=_WORDS[value])
    if value.startswith("[") and value.endswith("]"):
        items = [item.strip().strip("\"'") for item in value[1:-1].split(",")]
        return fact._replace(value=[item for item in items if item])
    for convert in (int, float):
        try:
            return fact._replace(value=convert(value)) if value[:1] in "+-.0123456789" else fact
        except ValueError:
            continue
    return fact
