"""What the rules find in the inputs of one call: the flow from files to findings that count."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from memlint.cli import internal_error
from memlint.cli.failure import Failure
from memlint.cli.session import Inputs, Session
from memlint.config import Settings
from memlint.config_file import ConfigError
from memlint.later import later
from memlint.report.excerpt import place
from memlint.report.result import CheckResult, Remedy, gravest_first
from memlint.rules import BASELINE
from memlint.rules.finding import Confidence, Finding, Fix, Severity, ordered, with_fingerprints
from memlint.source import ReadError, Span
from memlint.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint import assess
    from memlint.assess import Assessment
    from memlint.rules import baseline as baselines
    from memlint.rules import catalogue, engine, suppress
    from memlint.rules.rule import Rule
else:  # files without a run, most of those that a hook is given, need none of it
    (assess,) = later("memlint", "assess")
    baselines, catalogue, engine, suppress = later("memlint.rules", "baseline", "catalogue", "engine", "suppress")


def examine(
    inputs: Inputs, session: Session, *, ignores: bool = True, accepted: bool = True, baseline: str | None = None
) -> CheckResult:
    """Everything the rules find in the inputs, after suppressions (`ignores`) and the baseline (`accepted`)."""
    collected = _collect(inputs, session)
    kept: list[Finding] = []
    silenced: list[Finding] = []
    for group in collected.groups.values():
        findings = ordered(group.findings)
        if ignores:
            outcome = suppress.apply(findings, group.paths, session.source, group.rules, group.chosen, group.assessments)
            kept += outcome.findings
            silenced += outcome.suppressed
        else:
            kept += findings
    findings, silenced = _identified(kept, silenced, session)
    stale = 0
    if accepted:
        file = baseline or os.path.join(session.root_of(inputs.files[0] if inputs.files else "."), BASELINE)
        if baseline or os.path.exists(file):
            applied = baselines.read(file).apply(findings, (session.relative(path) for path in inputs.files))
            findings, silenced, stale = list(applied.new), [*silenced, *applied.known], len(applied.stale)
    notes = _notes(collected.assessments)
    if not inputs.files:
        notes.append("nothing to look at: no scripts, notebooks, launch scripts or configs in what was named")
    if stale:
        notes.append(f"{stale} entries of the baseline no longer occur: memlint baseline write removes them")
    return CheckResult(
        findings=tuple(findings),
        suppressed=tuple(silenced),
        errors=tuple(collected.errors),
        assessments=tuple(collected.assessments),
        files=len(inputs.files),
        excluded=inputs.excluded,
        notes=tuple(dict.fromkeys(notes)),
        owners={f.fingerprint: collected.owners[_key(f)] for f in findings if _key(f) in collected.owners},
        read=session.source,
    )


def rules_for(settings: Settings, loaded: tuple[Rule, ...] | None = None) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """All rules, and those that the settings select; a page or a selector that is wrong ends the command."""
    try:
        rules = loaded or catalogue.load_rules(settings)
        return rules, catalogue.selected(rules, settings)
    except ConfigError as error:
        raise Failure(str(error)) from None


class _Group:
    """Files under the same rules."""

    def __init__(self, rules: Sequence[Rule], chosen: Sequence[Rule]) -> None:
        self.rules = rules
        self.chosen = chosen
        self.paths: list[str] = []
        self.findings: list[Finding] = []
        self.assessments: list[Assessment] = []


class _Collected:
    def __init__(self) -> None:
        self.groups: dict[tuple[str, ...], _Group] = {}
        self.assessments: list[Assessment] = []
        self.errors: list[ReadError] = []
        self.owners: dict[tuple[str, Span, str], Assessment] = {}


def _collect(inputs: Inputs, session: Session) -> _Collected:
    collected = _Collected()
    loaded: dict[tuple[str, ...], tuple[Rule, ...]] = {}
    for path in inputs.files:
        found = session.read(path)
        if not found.runs and not found.errors and not session.speaks(path):
            if path in inputs.named:
                collected.errors += session.malformed(path)
            continue
        folders = found.settings.rules
        rules, chosen = rules_for(found.settings, loaded.get(folders))
        loaded[folders] = rules
        group = collected.groups.setdefault(tuple(rule.code for rule in chosen), _Group(rules, chosen))
        group.paths.append(path)
        assessed, broken = session.assess(found)
        for assessment in assessed:
            try:
                raised = engine.check(assessment, chosen)
            except Exception as error:
                broken.append(ReadError(internal_error(error), path))
                continue
            group.findings += raised
            for finding in raised:
                collected.owners.setdefault(_key(finding), assessment)
        group.assessments += assessed
        collected.assessments += assessed
        if path in inputs.named:
            collected.errors += session.troubles(found)
        group.findings += [_unreadable(error) for error in found.errors if error.partial or path not in inputs.named]
        collected.errors += broken
    return collected


def _key(finding: Finding) -> tuple[str, Span, str]:
    return finding.code, finding.span, finding.message


def _identified(kept: Iterable[Finding], silenced: Iterable[Finding], session: Session) -> tuple[list[Finding], list[Finding]]:
    """Fingerprints over all findings together, so that silencing one does not rename its twin."""
    both = sorted([(f, False) for f in kept] + [(f, True) for f in silenced], key=lambda pair: (pair[0].span, pair[0].code))
    if not both:
        return [], []
    named = with_fingerprints([finding for finding, _ in both], session.source, session.relative)
    pairs = list(zip(named, (silent for _, silent in both), strict=True))
    return [f for f, silent in pairs if not silent], [f for f, silent in pairs if silent]


def _unreadable(error: ReadError) -> Finding:
    """What does not parse of a file that nobody named as a training job, or of a notebook that else reads well: worth a word."""
    what = "this notebook is not read in full" if error.partial else "this file cannot be read"
    return Finding(
        "MEM202",
        "unreadable-file",
        Severity.WARNING,
        Confidence.PROVED,
        f"{what}: {error.message}",
        Span(error.path, error.line, error.column),
        logical="unreadable",
    )


MANY = 3
"""So many runs that lack the same thing are each named; of more the first, and their number."""


def _notes(assessments: Iterable[Assessment]) -> list[str]:
    """What keeps runs from a verdict, and how to supply it."""
    lacking: dict[str, dict[str, str]] = {}
    for assessment in assessments:
        reason, more = _lack(assessment)
        if reason:
            lacking.setdefault(reason, {}).setdefault(place(assessment.run.span), more)
    notes: list[str] = []
    for reason, places in lacking.items():
        if len(places) <= MANY:
            notes += [f"{where}: {reason}{more}" for where, more in places.items()]
        else:
            notes.append(f"{next(iter(places))} and {len(places) - 1} more: {reason}")
    return notes


def _lack(assessment: Assessment) -> tuple[str, str]:
    """What the run lacks, in words that are the same for all runs that lack it, and what is to be said of this one."""
    if assessment.is_fragment:
        return "", ""
    if assessment.why_not:
        return f"no {'verdict' if assessment.estimate else 'estimate'}: {assessment.why_not}", ""
    if assessment.estimate is None:
        return "", ""
    if assessment.gpu is not None:
        return "", ""
    card = assess.smallest_card(assessment.estimate)
    would_do = f"the smallest card that would do is {card.name}" if card else "no single card of the catalogue would do"
    return "no target card is named (--gpu, `# memlint: gpu=...` or [tool.memlint] gpu)", f"; {would_do}"


def with_effects(result: CheckResult) -> CheckResult:
    """The result with the memory after each fix, and under which finding each run's memory is shown."""
    remedies: dict[str, tuple[Remedy, ...]] = {}
    breakdowns: dict[str, Assessment] = {}
    shown: set[int] = set()
    for finding in gravest_first(result.findings):
        owner = result.owners.get(finding.fingerprint)
        if owner is None or owner.estimate is None:
            continue
        if owner.verdict in (assess.DOES_NOT_FIT, assess.TIGHT) and id(owner) not in shown:
            shown.add(id(owner))
            breakdowns[finding.fingerprint] = owner
        remedies[finding.fingerprint] = tuple(_effect(fix, owner) for fix in finding.fixes)
    return result._replace(remedies=remedies, breakdowns=breakdowns)


def _effect(fix: Fix, owner: Assessment) -> Remedy:
    after = assess.estimate_with(owner, fix.changes) if fix.changes else None
    before, left = owner.needed, owner._replace(estimate=after).needed
    return Remedy(fix, before.expected, left.expected) if before and left else Remedy(fix)
