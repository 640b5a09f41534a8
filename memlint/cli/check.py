"""`memlint check`: read, assess, judge, fix, report."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from memlint.assess import DOES_NOT_FIT, TIGHT, Assessment, estimate_with, smallest_card
from memlint.cli import internal_error
from memlint.cli.options import Parser, add_formats, add_settings, configs, over_settings, write_file
from memlint.cli.session import Inputs, Session, changed_since, from_stdin, gather
from memlint.config import Settings
from memlint.report import FORMATS, render
from memlint.report.excerpt import place
from memlint.report.result import CheckResult, Remedy, gravest_first
from memlint.report.style import Style, for_stream
from memlint.rules import Confidence, Finding, Fix, Rule, Severity, check, load_rules, selected, suppress
from memlint.rules import baseline as baselines
from memlint.rules.finding import ordered, with_fingerprints
from memlint.source import ReadError, Span


def parser() -> Parser:
    """The options of `memlint check`."""
    parser = Parser("check", "Lint training scripts, notebooks, launch scripts and configs.")
    parser.add_argument(
        "paths", nargs="*", default=["."], metavar="PATH", help="files and folders; - is standard input"
    )
    add_formats(parser, list(FORMATS))
    add_settings(parser)
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--select", action="append", default=[], metavar="RULES", help="run only these (codes, prefixes or names)"
    )
    rules.add_argument("--ignore", action="append", default=[], metavar="RULES", help="leave these out")
    rules.add_argument("--no-ignores", action="store_true", help="show what comments and the baseline silence")
    rules.add_argument("--baseline", type=Path, metavar="FILE", help=f"accepted findings (default: {baselines.FILE})")
    fixes = parser.add_argument_group("fixes")
    fixes.add_argument("--fix", action="store_true", help="apply the fixes that keep the mathematics of the training")
    fixes.add_argument("--unsafe-fixes", action="store_true", help="apply those that change numerics or schedule, too")
    fixes.add_argument("--diff", action="store_true", help="show what --fix would change, and change nothing")
    what = parser.add_argument_group("files")
    what.add_argument("--since", metavar="REV", help="only files that differ from this git revision")
    what.add_argument("--force-exclude", action="store_true", help="exclude patterns hold for files given by name, too")
    what.add_argument("--stdin-filename", metavar="NAME", help="the name to treat standard input as")
    ending = parser.add_argument_group("exit code")
    ending.add_argument(
        "--fail-on", choices=[s.value for s in Severity], help="the least severity that makes the exit code 1"
    )
    ending.add_argument("--exit-zero", action="store_true", help="exit 0 even when there are findings")
    parser.add_argument("--statistics", action="store_true", help="count findings by rule instead of showing them")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Check the paths; returns the exit code."""
    options = parser().parse_args(arguments)
    paths, texts = from_stdin(options.paths, options.stdin_filename)
    session = Session(configs(options), _layer(options), texts)
    if options.since is not None:
        inputs = gather(changed_since(options.since, paths), session, force_exclude=True)
    else:
        inputs = gather(paths, session, force_exclude=options.force_exclude)
    if options.fix or options.unsafe_fixes or options.diff:
        from memlint.cli.fix import fix_and_report

        return fix_and_report(inputs, session, options)
    result = examine(
        inputs, session, ignores=not options.no_ignores, accepted=not options.no_ignores, baseline=options.baseline
    )
    report(result, options.format, options.statistics)
    return exit_code(result, session, exit_zero=options.exit_zero)


def _layer(options: argparse.Namespace) -> Callable[[Settings], Settings]:
    over = over_settings(options)
    given = {name: _rule_names(getattr(options, name)) or None for name in ("select", "ignore")}

    def layer(settings: Settings) -> Settings:
        settings = over(settings)
        for name, value in {**given, "fail_on": options.fail_on}.items():
            if value is not None:
                settings = settings.with_options(f"--{name.replace('_', '-')}", **{name: value})
        return settings

    return layer


def _rule_names(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.strip() for text in given for name in text.split(",") if name.strip())


def examine(
    inputs: Inputs, session: Session, *, ignores: bool = True, accepted: bool = True, baseline: Path | None = None
) -> CheckResult:
    """Everything the rules find in the inputs, after suppressions (`ignores`) and the baseline (`accepted`)."""
    collected = _collect(inputs, session)
    kept: list[Finding] = []
    silenced: list[Finding] = []
    for group in collected.groups.values():
        findings = ordered(group.findings)
        if ignores:
            outcome = suppress.apply(
                findings, group.paths, session.source, group.rules, group.chosen, group.assessments
            )
            kept += outcome.findings
            silenced += outcome.suppressed
        else:
            kept += findings
    findings, silenced = _identified(kept, silenced, session)
    stale = 0
    if accepted:
        file = baseline or session.root_of(inputs.files[0] if inputs.files else ".") / baselines.FILE
        applied = baselines.read(file).apply(findings, (session.relative(path) for path in inputs.files))
        findings, silenced, stale = list(applied.new), [*silenced, *applied.known], len(applied.stale)
    notes = [note for assessment in collected.assessments if (note := _note(assessment))]
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


@dataclass(slots=True)
class _Group:
    """Files under the same rules."""

    rules: Sequence[Rule]
    chosen: Sequence[Rule]
    paths: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    assessments: list[Assessment] = field(default_factory=list)


@dataclass(slots=True)
class _Collected:
    groups: dict[tuple[str, ...], _Group] = field(default_factory=dict)
    assessments: list[Assessment] = field(default_factory=list)
    errors: list[ReadError] = field(default_factory=list)
    owners: dict[tuple[str, Span, str], Assessment] = field(default_factory=dict)


def _collect(inputs: Inputs, session: Session) -> _Collected:
    collected = _Collected()
    loaded: dict[tuple[Path, ...], tuple[Rule, ...]] = {}
    for path in inputs.files:
        found = session.read(path)
        folders = found.settings.rules
        rules = loaded.get(folders) or loaded.setdefault(folders, load_rules(found.settings))
        chosen = selected(rules, found.settings)
        group = collected.groups.setdefault(tuple(rule.code for rule in chosen), _Group(rules, chosen))
        group.paths.append(path)
        assessed, broken = session.assess(found)
        for assessment in assessed:
            try:
                raised = check(assessment, chosen)
            except Exception as error:
                broken.append(ReadError(internal_error(error), path))
                continue
            group.findings += raised
            for finding in raised:
                collected.owners.setdefault(_key(finding), assessment)
        group.assessments += assessed
        collected.assessments += assessed
        if path in inputs.named:
            collected.errors += found.errors
        else:
            group.findings += [_unreadable(error) for error in found.errors]
        collected.errors += broken
    return collected


def _key(finding: Finding) -> tuple[str, Span, str]:
    return finding.code, finding.span, finding.message


def _identified(
    kept: Iterable[Finding], silenced: Iterable[Finding], session: Session
) -> tuple[list[Finding], list[Finding]]:
    """Fingerprints over all findings together, so that silencing one does not rename its twin."""
    both = sorted(
        [(f, False) for f in kept] + [(f, True) for f in silenced], key=lambda pair: (pair[0].span, pair[0].code)
    )
    named = with_fingerprints([finding for finding, _ in both], session.source, session.relative)
    pairs = list(zip(named, (silent for _, silent in both), strict=True))
    return [f for f, silent in pairs if not silent], [f for f, silent in pairs if silent]


def _unreadable(error: ReadError) -> Finding:
    """A file met while walking a folder that does not parse: worth a word, but nobody said it is a training job."""
    return Finding(
        "MEM202",
        "unreadable-file",
        Severity.WARNING,
        Confidence.PROVED,
        f"this file cannot be read: {error.message}",
        Span(error.path, error.line, error.column),
        logical="unreadable",
    )


def _note(assessment: Assessment) -> str | None:
    """What keeps a run from a verdict, and how to supply it."""
    where = place(assessment.run.span)
    if assessment.estimate is None:
        return f"{where}: no estimate: {assessment.why_not}" if assessment.why_not else None
    if assessment.gpu is not None:
        return None
    card = smallest_card(assessment.estimate)
    would_do = f"the smallest card that would do is {card.name}" if card else "no single card of the catalogue would do"
    return f"{where}: no target card is named (--gpu, `# memlint: gpu=...` or [tool.memlint] gpu); {would_do}"


def report(result: CheckResult, formats: Sequence[tuple[str, str | None]], statistics: bool) -> None:
    """Write every format asked for; `full` to standard output when nothing else goes there."""
    if any(name in SHOW_EFFECTS for name, _ in formats or [("full", None)]):
        result = with_effects(result)
    outputs = list(formats) if any(file is None for _, file in formats) else [*formats, ("full", None)]
    for name, file in outputs:
        if file is not None:
            write_file(file, render(name, result, Style()))
        elif statistics:
            sys.stdout.write(_statistics(result))
        else:
            sys.stdout.write(render(name, result, for_stream(sys.stdout)))


SHOW_EFFECTS = ("full", "json", "jsonl", "markdown", "sarif")
"""Formats that say what a fix would do to the memory; the others need no further estimates."""


def with_effects(result: CheckResult) -> CheckResult:
    """The result with the memory after each fix, and under which finding each run's memory is shown."""
    remedies: dict[str, tuple[Remedy, ...]] = {}
    breakdowns: dict[str, Assessment] = {}
    shown: set[int] = set()
    for finding in gravest_first(result.findings):
        owner = result.owners.get(finding.fingerprint)
        if owner is None or owner.estimate is None:
            continue
        if owner.verdict in (DOES_NOT_FIT, TIGHT) and id(owner) not in shown:
            shown.add(id(owner))
            breakdowns[finding.fingerprint] = owner
        remedies[finding.fingerprint] = tuple(_effect(fix, owner) for fix in finding.fixes)
    return replace(result, remedies=remedies, breakdowns=breakdowns)


def _effect(fix: Fix, owner: Assessment) -> Remedy:
    after = estimate_with(owner, fix.changes) if fix.changes else None
    if after is None or owner.estimate is None:
        return Remedy(fix)
    context = owner.context_bytes
    return Remedy(fix, owner.estimate.required.expected + context, after.required.expected + context)


def _statistics(result: CheckResult) -> str:
    counts = Counter((finding.code, finding.name) for finding in result.findings)
    rows = [f"{count:>5}  {code}  {name}" for (code, name), count in counts.most_common()]
    return "".join(row + "\n" for row in rows)


def exit_code(result: CheckResult, session: Session, *, exit_zero: bool = False) -> int:
    """2 when a named input could not be read, 1 when a finding is grave enough for its file's settings, else 0."""
    if result.errors:
        return 2
    failing = any(_fails(finding, session.settings_for(finding.span.path).fail_on) for finding in result.findings)
    return 1 if failing and not exit_zero else 0


def _fails(finding: Finding, threshold: str) -> bool:
    return finding.fails if threshold == "error" else finding.severity.at_least(Severity(threshold))
