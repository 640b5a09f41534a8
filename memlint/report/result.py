"""What a check yields, before it takes the form of a report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from memlint.comments import code_cells
from memlint.paths import shown
from memlint.rules.finding import Finding, Fix, Read, Severity
from memlint.source import ReadError, Span
from memlint.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from memlint.assess import Assessment


class TextEdit(NamedTuple):
    """One replacement of a verified fix, in lines and columns of the file as it is."""

    span: Span
    replacement: str


class Remedy(NamedTuple):
    """A fix as reports show it: what it does to the memory needed (required plus context), and its edits."""

    fix: Fix
    before_bytes: int | None = None
    after_bytes: int | None = None
    edits: tuple[TextEdit, ...] = ()


class CheckResult(NamedTuple):
    """The outcome of `memlint check`.

    `findings` are what counts, in file order; `suppressed` were silenced by a comment or a baseline and carry the
    reason; `errors` are the inputs that could not be read.
    """

    findings: tuple[Finding, ...] = ()
    suppressed: tuple[Finding, ...] = ()
    errors: tuple[ReadError, ...] = ()
    assessments: tuple[Assessment, ...] = ()
    files: int = 0
    excluded: int = 0
    fixed: int = 0
    notes: tuple[str, ...] = ()
    """What kept runs from a verdict, and how to supply it; one sentence each."""
    owners: Mapping[str, Assessment] = {}
    """The run that a finding (by fingerprint) is about."""
    remedies: Mapping[str, tuple[Remedy, ...]] = {}
    """The fixes of a finding, by its fingerprint, where their effect was computed."""
    breakdowns: Mapping[str, Assessment] = {}
    """The finding (by fingerprint) under which a run's memory is shown: the gravest of each run that has too little."""
    read: Read = lambda _: None

    def count(self, severity: Severity) -> int:
        """How many findings have this severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def remedies_of(self, finding: Finding) -> tuple[Remedy, ...]:
        """The fixes of a finding with their effect, where it was computed."""
        return self.remedies.get(finding.fingerprint) or tuple(Remedy(fix) for fix in finding.fixes)

    def lines(self, span: Span) -> list[str]:
        """The lines of the file that a place is in (of its cell, in a notebook); empty when the text is not at hand."""
        source = self.read(span.path)
        if source is None:
            return []
        if span.cell:
            cells = dict(code_cells(source.text))
            return cells.get(span.cell, "").splitlines()
        return source.lines


def relative(path: str) -> str:
    """A path as CI services want it: relative to the working directory when it lies below, posix separators."""
    return shown(path if os.path.isabs(path) else os.path.normpath(path))


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    """Errors first: a service that cuts a long list (GitHub shows ten annotations a step) cuts the least important."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))
