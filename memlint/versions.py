"""Which library versions are in force for a file: what its repository pins, else what the configuration says, else the newest known.

Read as text, never resolved: a pin in a lock file is exact; a bare lower bound (`transformers>=4.40`) is not a version and the
newest known stands; an upper bound or a compatible release gives the newest version known below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Pin(NamedTuple):
    """A version and the place that says so (`requirements.txt:3`, `newest known`)."""

    version: str
    where: str


NEWEST = {
    "transformers": "5.24.0",
    "trl": "1.16.0",
    "peft": "0.21.2",
    "accelerate": "1.15.0",
    "deepspeed": "0.19.8",
    "bitsandbytes": "0.50.2",
    "torch": "2.13.0",
}
"""The newest versions whose defaults were read."""


def version_key(version: str) -> tuple[int, ...]:
    """A version as a comparable tuple of its leading numbers (`"4.57.6.dev0"` -> `(4, 57, 6)`)."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match.group(1).split(".")) if match else (0,)


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions in force; a library that nothing pins has the newest known one."""

    pins: Mapping[str, Pin] = field(default_factory=dict)

    def of(self, library: str) -> Pin:
        """The version of a library and where it was read."""
        return self.pins.get(library) or Pin(NEWEST.get(library, "0"), "newest known")

    def at_least(self, library: str, version: str) -> bool:
        """Whether the version in force is this one or newer."""
        return version_key(self.of(library).version) >= version_key(version)

    def note(self, library: str) -> str:
        """`transformers 5.24.0`, for the origin of a default."""
        return f"{library} {self.of(library).version}"


__all__ = ["NEWEST", "Iterator", "Path", "Pin", "Versions", "version_key"]


def versions_for(path: str, pinned: Mapping[str, str] | None = None) -> Versions:
    """The versions in force for a file; `pinned` are versions stated by hand, which win."""
    return Versions({library: Pin(version, "configuration") for library, version in (pinned or {}).items()})
