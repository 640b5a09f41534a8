"""A baseline: the findings that a repository already has and accepts for now, so that only new ones count.

Entries are known by fingerprint, which has no line number in it. An entry that no longer occurs is stale and wants
removing: a baseline may only shrink by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from memlint.config import ConfigError
from memlint.paths import text_of
from memlint.rules.finding import Finding
from memlint.typed import NamedTuple

SCHEMA = "memlint.baseline.v1"


class Entry(NamedTuple):
    """One accepted finding; `reason` is free text of the people who keep the file, and survives rewriting."""

    fingerprint: str
    code: str
    path: str
    message: str
    reason: str = ""


class Applied(NamedTuple):
    """Findings against a baseline: the new ones, the accepted ones, and entries that no longer occur."""

    new: tuple[Finding, ...]
    known: tuple[Finding, ...]
    stale: tuple[Entry, ...]


class Baseline(NamedTuple):
    """The entries of a baseline file, by fingerprint."""

    entries: Mapping[str, Entry] = {}

    def apply(self, findings: Iterable[Finding], linted: Iterable[str]) -> Applied:
        """Split findings into new and accepted. Only entries of the `linted` (relative) paths can be stale."""
        new: list[Finding] = []
        known: list[Finding] = []
        for finding in findings:
            entry = self.entries.get(finding.fingerprint)
            if entry is None:
                new.append(finding)
            else:
                known.append(finding._replace(reason=entry.reason or "accepted in the baseline"))
        seen, paths = {finding.fingerprint for finding in known}, set(linted)
        stale = (entry for entry in self.entries.values() if entry.path in paths and entry.fingerprint not in seen)
        return Applied(tuple(new), tuple(known), tuple(stale))


def read(path: str) -> Baseline:
    """The baseline in a file; an empty one when there is no file. Raises `ConfigError` when it is something else."""
    try:
        data = json.loads(text_of(path))
    except FileNotFoundError:
        return Baseline()
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"not a baseline: {error}", path, getattr(error, "lineno", 1)) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ConfigError(f"not a baseline: schema is not {SCHEMA}", path)
    try:
        entries = [Entry(**{name: str(value) for name, value in entry.items()}) for entry in data["findings"]]
    except (KeyError, TypeError, AttributeError):
        raise ConfigError("not a baseline: an entry has other fields than memlint writes", path) from None
    return Baseline({entry.fingerprint: entry for entry in entries})


def write(path: str, findings: Iterable[Finding], relative: Callable[[str], str], linted: Iterable[str] = ()) -> Baseline:
    """Write the findings as the baseline, sorted, one entry a line; what was accepted before keeps its reason.

    Entries of files that were not `linted` this time stay.
    """
    before, paths = read(path), set(linted)
    entries = {entry.fingerprint: entry for entry in before.entries.values() if entry.path not in paths}
    for finding in findings:
        old = before.entries.get(finding.fingerprint)
        entries[finding.fingerprint] = Entry(
            finding.fingerprint, finding.code, relative(finding.span.path), finding.message, old.reason if old else ""
        )
    rows = sorted(entries.values(), key=lambda entry: (entry.path, entry.code, entry.fingerprint))
    lines = ",\n".join(
        "    " + json.dumps({name: getattr(row, name) for name in Entry._fields}, ensure_ascii=False) for row in rows
    )
    body = f"\n{lines}\n  " if rows else ""
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{{\n  "schema": "{SCHEMA}",\n  "findings": [{body}]\n}}\n')
    return Baseline(entries)
