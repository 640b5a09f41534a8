"""What a rule says about a run: a `Finding`, with the places that matter and the changes that would settle it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from memlint.source import Source, Span
from memlint.typed import Any, NamedTuple


class Severity(str, Enum):
    """How bad it is if true."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    def at_least(self, other: Severity) -> bool:
        """True when this severity is as grave as `other`, or graver."""
        order = list(Severity)
        return order.index(self) <= order.index(other)


class Confidence(str, Enum):
    """How sure memlint is that it is true.

    `proved`: every fact it rests on is known and no estimate is involved. `bounded`: it rests on an estimate's
    interval, or on every member of a closed set of values. `guessed`: something it rests on is itself a guess (a
    shape from a name).
    """

    PROVED = "proved"
    BOUNDED = "bounded"
    GUESSED = "guessed"


class Safety(str, Enum):
    """What a fix may change besides memory."""

    SAFE = "safe"
    """Same mathematics up to rounding."""
    UNSAFE = "unsafe"
    """Training numerics, schedule or data change."""
    SUGGEST = "suggest"
    """Shown, never applied."""


class Label(NamedTuple):
    """A place with what it has to do with the finding."""

    span: Span
    text: str


class Fix(NamedTuple):
    """Changes to canonical facts that would settle a finding; the dialect that read a fact knows how to write it back.

    `removes` is text to delete instead (a comment that suppresses nothing).
    """

    title: str
    changes: Mapping[str, Any]
    safety: Safety
    removes: Span | None = None


class Finding(NamedTuple):
    """One finding. `logical` is the canonical key (or problem name) it points at; part of the fingerprint."""

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    message: str
    span: Span
    labels: tuple[Label, ...] = ()
    fixes: tuple[Fix, ...] = ()
    logical: str = ""
    fingerprint: str = ""
    reason: str = ""
    """The reason somebody gave for suppressing it; empty for a finding that counts."""

    @property
    def fails(self) -> bool:
        """True for an error that is more than a guess: what fails a default run."""
        return self.severity is Severity.ERROR and self.confidence is not Confidence.GUESSED

    @property
    def spans(self) -> tuple[Span, ...]:
        """The primary place and every label's."""
        return (self.span, *(label.span for label in self.labels))


Read = Callable[[str], "Source | None"]
"""Gives the source of a path that a finding points into, or None when it is not at hand."""


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """In file order without doubles (two launches of one script find the same thing twice)."""
    distinct = {(f.code, f.span, f.message): f for f in findings}
    return sorted(distinct.values(), key=lambda f: (f.span, f.code))


def with_fingerprints(findings: Iterable[Finding], read: Read, relative: Callable[[str], str]) -> list[Finding]:
    """The findings, each with the identity that baselines and code-scanning services track it by.

    It is made of the code, the path as `relative` gives it, the logical path, the source line without its spacing and
    comment, and, among findings equal in all of these, the ordinal. Line numbers are no part of it, so moving code
    keeps it.
    """
    from hashlib import sha256  # loads OpenSSL: only where there is something to identify

    seen: dict[tuple[str, ...], int] = {}
    named: list[Finding] = []
    for finding in findings:
        text = _normalised(_source_line(finding.span, read(finding.span.path)))
        identity = (finding.code, relative(finding.span.path), finding.logical, text)
        ordinal = seen[identity] = seen.get(identity, -1) + 1
        digest = sha256("\0".join((*identity, str(ordinal))).encode("utf-8", "replace")).hexdigest()
        named.append(finding._replace(fingerprint=digest[:16]))
    return named


def _source_line(span: Span, source: Source | None) -> str:
    """The text of the line a span starts on; empty for a notebook cell (its lines are inside JSON)."""
    if source is None or span.cell:
        return ""
    lines = source.lines
    return lines[span.line - 1] if 0 < span.line <= len(lines) else ""


def _normalised(line: str) -> str:
    """Without indentation, spacing and a trailing `# memlint:` comment, which change without changing what is said."""
    return " ".join(line.partition("# memlint:")[0].split()).rstrip(",")
