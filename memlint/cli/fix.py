"""`memlint check --fix` and `--diff`: the shell around `memlint.fixes`, imported when something is to be written."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import SimpleNamespace

from memlint.assess import Assessment, assess
from memlint.cli.check import exit_code, report
from memlint.cli.examine import examine
from memlint.cli.failure import Failure
from memlint.cli.session import Inputs, Session
from memlint.fixes import Fixed, FixEdits, Offer, fix_edits, run_fixes
from memlint.fixes.edit import WriteError
from memlint.report.result import CheckResult, Remedy, TextEdit, gravest_first
from memlint.report.text import plain
from memlint.rules.finding import Safety
from memlint.source import Places, Span


def fix_and_report(inputs: Inputs, session: Session, options: SimpleNamespace) -> int:
    """Fix, then report what is left; with `--diff` show the changes only, exit code 1 when there are any."""
    fixed = run_fixes(lambda texts: _offers(inputs, session.with_texts(texts), options), unsafe=options.unsafe_fixes)
    if not fixed.converged:
        sys.stderr.write("memlint: the fixes do not settle; nothing was changed\n")
    if options.diff:
        sys.stdout.write(fixed.diff())
        return 1 if fixed.after and not options.exit_zero else 0
    session = _written(fixed, session)
    ignores = not options.no_ignores
    result = examine(inputs, session, ignores=ignores, accepted=ignores, baseline=options.baseline)
    result = result._replace(fixed=len(fixed.applied))
    # The fixed text of standard input is the output; what is left to say goes beside it.
    report(result, options.format, session, options.statistics, sys.stderr if session.texts else sys.stdout)
    for one in fixed.applied:
        sys.stderr.write(f"fixed {one.finding.code} {plain(one.finding.span.path)}: {plain(one.fix.title)}\n")
    return exit_code(result, session, exit_zero=options.exit_zero)


def _written(fixed: Fixed, session: Session) -> Session:
    """Files on disk are rewritten; standard input comes back on standard output, fixed or not."""
    for path, source in session.texts.items():
        sys.stdout.write(fixed.after.get(path, source).text)
    if session.texts:
        return session.with_texts(fixed.after)
    try:
        fixed.write()
    except WriteError as error:
        raise Failure(str(error)) from None
    return session.with_texts({})


def _offers(inputs: Inputs, session: Session, options: SimpleNamespace) -> Iterable[Offer]:
    ignores = not options.no_ignores
    result = examine(inputs, session, ignores=ignores, accepted=ignores, baseline=options.baseline)
    fixable = [finding for finding in gravest_first(result.findings) if finding.fixes]
    # Safe fixes first: what they save need not be taken from the batch.
    order = list(Safety)
    for finding in sorted(fixable, key=lambda finding: min(order.index(fix.safety) for fix in finding.fixes)):
        owner = result.owners.get(finding.fingerprint)
        if owner is not None:
            yield Offer(finding, owner, session.project_for(owner.run.path, owner.settings))


def with_edits(result: CheckResult, session: Session) -> CheckResult:
    """The result with the proved text edits of every fix that memlint can write, and the memory of what would then be read."""
    remedies = dict(result.remedies)
    for finding in result.findings:
        owner = result.owners.get(finding.fingerprint)
        if owner is None:
            continue
        project = session.project_for(owner.run.path, owner.settings)
        known = result.remedies_of(finding)
        remedies[finding.fingerprint] = tuple(
            _written_out(remedy, owner, fix_edits(owner.run, remedy.fix.changes, project)) for remedy in known
        )
    return result._replace(remedies=remedies)


def _written_out(remedy: Remedy, owner: Assessment, proved: FixEdits | None) -> Remedy:
    """What else follows from the changed values (an evaluation that takes the training's batch size) counts, too."""
    if proved is None:
        return remedy
    left = assess(proved.run, owner.gpu, owner.settings).needed
    after = remedy.after_bytes if left is None or remedy.after_bytes is None else left.expected
    return remedy._replace(edits=_edits(proved), after_bytes=after)


def _edits(proved: FixEdits) -> tuple[TextEdit, ...]:
    places: Mapping[str, Places] = {path: Places(source.text) for path, source in proved.before.items()}
    found = []
    for edit in proved.edits:
        start, end = places[edit.path].place(edit.start), places[edit.path].place(edit.end)
        found.append(TextEdit(Span(edit.path, *start, *end), edit.replacement))
    return tuple(found)
