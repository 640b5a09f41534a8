"""A fact: a value, how sure it is, and where it comes from.

The same type carries native arguments (`per_device_train_batch_size` of a call, a YAML key, a flag) and canonical keys
(`batch.micro_batch_size`), so a dialect is a function from facts to facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from memlint.source import Span
from memlint.typed import Any, NamedTuple


class Status(str, Enum):
    """How sure a value is."""

    FIXED = "fixed"
    """The input says so."""
    DEFAULT = "default"
    """A library's default, or an overridable default of the input (argparse, dataclass, `${VAR:-x}`)."""
    CHOICES = "choices"
    """One of a closed set, e.g. both branches of a conditional."""
    UNKNOWN = "unknown"
    """Cannot be known statically; `reason` says why."""


class Origin(NamedTuple):
    """A link of the chain that brought a value here. `span` is None for a library default; `note` names the link."""

    span: Span | None
    note: str = ""


class Fact(NamedTuple):
    """One value.

    `origin[0]` is the place that sets the value (where a fix would write); the later ones are the chain that leads there.
    `decided_by` is `"gpu.bf16"` when `choices` is (value with bf16 support, value without) of the target card.
    """

    value: Any
    status: Status = Status.FIXED
    origin: tuple[Origin, ...] = ()
    choices: tuple[Any, ...] = ()
    reason: str = ""
    decided_by: str = ""

    @property
    def known(self) -> bool:
        """True when there is exactly one value."""
        return self.status in (Status.FIXED, Status.DEFAULT)

    @property
    def values(self) -> tuple[Any, ...]:
        """Every value it may take; empty when unknown."""
        if self.known:
            return (self.value,)
        return self.choices

    def through(self, span: Span | None, note: str) -> Fact:
        """The same fact, reached through one more link."""
        return self._replace(origin=(*self.origin, Origin(span, note)))

    def with_value(self, value: Any) -> Fact:
        """The same fact (status, origin) translated to another value; for a known fact only."""
        return self._replace(value=value)


def fixed(value: Any, span: Span | None = None, note: str = "") -> Fact:
    """A value that the input states."""
    return Fact(value, Status.FIXED, (Origin(span, note),) if span or note else ())


def default(value: Any, note: str, span: Span | None = None) -> Fact:
    """A default; `note` names the library and version, or the parser that holds it."""
    return Fact(value, Status.DEFAULT, (Origin(span, note),))


def choices(values: Iterable[Any], span: Span | None = None, note: str = "", decided_by: str = "") -> Fact:
    """A closed set of values (duplicates dropped, order kept); one value only is simply fixed."""
    distinct: list[Any] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    origin = (Origin(span, note),) if span or note else ()
    if len(distinct) == 1:
        return Fact(distinct[0], Status.FIXED, origin)
    return Fact(None, Status.CHOICES, origin, choices=tuple(distinct), decided_by=decided_by)


def unknown(reason: str, span: Span | None = None) -> Fact:
    """A value that cannot be known, with the reason a person understands."""
    return Fact(None, Status.UNKNOWN, (Origin(span),) if span else (), reason=reason)
