"""`lightning.Trainer(...)` as a place to write: the settings of the command line's `trainer` block as arguments."""

from __future__ import annotations

from memlint.dialects import lightning_cli
from memlint.typed import Any

NAME = "lightning"
_BLOCK = "trainer."


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> argument of `Trainer`; None where it cannot say it. A strategy's own options belong to its object."""
    return _arguments(lightning_cli.write(key, value))


def alternatives(key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """The strategies that are a name."""
    ways = [_arguments(way) for way in lightning_cli.alternatives(key, value)]
    return [way for way in ways if way]


def _arguments(pairs: list[tuple[str, Any]] | None) -> list[tuple[str, Any]] | None:
    named = [(name.removeprefix(_BLOCK), value) for name, value in pairs or ()]
    return named if named and all("." not in name for name, _ in named) else None
