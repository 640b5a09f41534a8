"""From canonical changes to proved edits, and from the findings of a check to fixed files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from memlint.assess import Assessment
from memlint.extract import extract
from memlint.facts import Extraction, TrainingRun
from memlint.fixes import edit
from memlint.fixes.edit import Edit
from memlint.fixes.sites import candidates
from memlint.fixes.verify import find, holds, says
from memlint.project import Project
from memlint.rules.finding import Finding, Fix, Safety
from memlint.source import Source
from memlint.typed import Any

MAX_ROUNDS = 10
"""Fixing and linting again stops here; what has not settled by then is left as it was."""


@dataclass(frozen=True, slots=True)
class FixEdits:
    """The proved edits of one set of changes, and each changed file as it was and as it would be."""

    changes: Mapping[str, Any]
    edits: tuple[Edit, ...]
    before: Mapping[str, Source]
    after: Mapping[str, Source]
    run: TrainingRun
    """The run as it would be read."""


def fix_edits(run: TrainingRun, changes: Mapping[str, Any], project: Project) -> FixEdits | None:
    """The edits that make these changes to a run; None when they cannot be written, or not without changing more.

    `run` may have values laid over it (`--set`, the card's decisions): a change to a value that does not come from the
    files is None. Changes that the files say already need no edits.
    """
    original = extract(run.path, project)
    index = find(original.runs, run)
    if index is None or any(_overlaid(run, original.runs[index], key) for key in changes):
        return None
    texts: dict[str, Source] = {}
    current = original
    for key, value in changes.items():
        if says(current.runs[index], key, value):
            continue
        overlay = project.with_texts(texts)
        for changed in candidates(current.runs[index], key, value, overlay):
            proposed = {**texts, changed.path: changed}
            found = extract(run.path, project.with_texts(proposed))
            if holds(original, found, index, {**_said(found, index, changes), key: value}):
                texts, current = proposed, found
                break
        else:
            return None
    if not holds(original, current, index, changes):
        return None
    before = {path: project.read(path) for path in texts}
    edits = tuple(e for path in texts for e in edit.between(path, before[path].text, texts[path].text))
    return FixEdits(dict(changes), edits, before, texts, current.runs[index])


def _overlaid(run: TrainingRun, original: TrainingRun, key: str) -> bool:
    """Whether a value was laid over what the files say; a choice that the card settled is still the files' own."""
    fact, written = run.facts.get(key), original.facts.get(key)
    if fact is None or not fact.known:
        return False
    return written is None or (bool(written.values) and fact.value not in written.values)


def _said(found: Extraction, index: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes that an extraction has already."""
    if index >= len(found.runs):
        return {}
    return {key: value for key, value in changes.items() if says(found.runs[index], key, value)}


@dataclass(frozen=True, slots=True)
class Offer:
    """A finding with what is needed to fix it: the run it is about, as assessed, and the files around it."""

    finding: Finding
    assessment: Assessment
    project: Project


@dataclass(frozen=True, slots=True)
class Applied:
    """One fix that was made."""

    finding: Finding
    fix: Fix
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """The outcome of `run_fixes`; nothing is on disk until `write`."""

    applied: tuple[Applied, ...] = ()
    converged: bool = True
    before: Mapping[str, Source] = field(default_factory=dict)
    after: Mapping[str, Source] = field(default_factory=dict)
    """The changed files."""

    def diff(self) -> str:
        """All changes as one unified diff; empty when there are none."""
        return "".join(edit.diff(self.before[path], self.after[path].text) for path in sorted(self.after))

    def write(self) -> None:
        """Write the changed files, all or none. Raises `edit.WriteError`."""
        edit.write({path: (self.before[path].text, source.text) for path, source in self.after.items()})


Lint = Callable[[Mapping[str, Source]], Iterable[Offer]]
"""Lints the same inputs, with other texts in the place of some files, and gives every finding that has fixes."""


def run_fixes(lint: Lint, *, unsafe: bool = False) -> Fixed:
    """Fix what can be fixed: a fix for each run, lint again, and so on until no fix is left.

    Only safe fixes are made, with `unsafe` also those that change the training; suggestions never. When it does not
    settle within ten rounds, or comes back to a text it had before, nothing is changed (`converged` is False).
    """
    allowed = {Safety.SAFE, Safety.UNSAFE} if unsafe else {Safety.SAFE}
    texts: dict[str, Source] = {}
    originals: dict[str, Source] = {}
    applied: list[Applied] = []
    seen = {_state(texts)}
    for _ in range(MAX_ROUNDS):
        made = _one_round(lint(texts), allowed)
        if not made:
            changed = {path: source for path, source in texts.items() if source.text != originals[path].text}
            return Fixed(tuple(applied), True, {path: originals[path] for path in changed}, changed)
        for one, edits in made:
            applied.append(Applied(*one, edits.edits))
            for path, source in edits.after.items():
                originals.setdefault(path, edits.before[path])
                texts[path] = source
        state = _state(texts)
        if state in seen:
            break
        seen.add(state)
    return Fixed(converged=False)


def _one_round(offers: Iterable[Offer], allowed: set[Safety]) -> list[tuple[tuple[Finding, Fix], FixEdits]]:
    """At most one fix for each run, none of which touches a file that another one changed."""
    made: list[tuple[tuple[Finding, Fix], FixEdits]] = []
    touched: set[str] = set()
    runs: set[tuple[str, object]] = set()
    for offer in offers:
        run = offer.assessment.run
        if (run.path, run.span) in runs or touched.intersection((run.path, *run.files)):
            continue
        found = _first_fix(offer, allowed)
        if found is not None and not touched.intersection(found[1].after):
            made.append(((offer.finding, found[0]), found[1]))
            touched.update(found[1].after)
            runs.add((run.path, run.span))
    return made


def _first_fix(offer: Offer, allowed: set[Safety]) -> tuple[Fix, FixEdits] | None:
    """The first fix of a finding that may be made and can be written (`rules.engine` gives none that does not help)."""
    for fix in offer.finding.fixes:
        if fix.safety not in allowed:
            continue
        edits = fix_edits(offer.assessment.run, fix.changes, offer.project)
        if edits is not None and edits.edits:
            return fix, edits
    return None


def _state(texts: Mapping[str, Source]) -> int:
    return hash(frozenset((path, source.text) for path, source in texts.items()))
