"""`memlint check`: read, assess, judge, fix, report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace

from memlint.cli.arguments import Parser
from memlint.cli.examine import examine, rules_for, with_effects
from memlint.cli.options import add_formats, add_settings, configs, over_settings, write_file
from memlint.cli.session import Session, changed_since, from_stdin, gather
from memlint.config import Settings
from memlint.report import FORMATS, render
from memlint.report.result import CheckResult
from memlint.report.style import Style, for_stream
from memlint.rules import BASELINE
from memlint.rules.finding import Finding, Severity
from memlint.typed import TextIO


def parser() -> Parser:
    """The options of `memlint check`."""
    parser = Parser("check", "Lint training scripts, notebooks, launch scripts and configs.")
    parser.add_argument("paths", nargs="*", default=["."], metavar="PATH", help="files and folders; - is standard input")
    add_formats(parser, list(FORMATS))
    add_settings(parser)
    rules = parser.add_argument_group("rules")
    rules.add_argument("--select", action="append", default=[], metavar="RULES", help="run only these (codes, prefixes or names)")
    rules.add_argument("--ignore", action="append", default=[], metavar="RULES", help="leave these out")
    rules.add_argument("--no-ignores", action="store_true", help="show what comments and the baseline silence")
    rules.add_argument("--baseline", metavar="FILE", help=f"accepted findings (default: {BASELINE})")
    fixes = parser.add_argument_group("fixes")
    fixes.add_argument("--fix", action="store_true", help="apply the fixes that keep the mathematics of the training")
    fixes.add_argument("--unsafe-fixes", action="store_true", help="apply those that change numerics or schedule, too")
    fixes.add_argument("--diff", action="store_true", help="show what --fix would change, and change nothing")
    what = parser.add_argument_group("files")
    what.add_argument("--since", metavar="REV", help="only files that differ from this git revision")
    what.add_argument("--force-exclude", action="store_true", help="exclude patterns hold for files given by name, too")
    what.add_argument("--stdin-filename", metavar="NAME", help="the name to treat standard input as")
    ending = parser.add_argument_group("exit code")
    ending.add_argument("--fail-on", choices=[s.value for s in Severity], help="the least severity that makes the exit code 1")
    ending.add_argument("--exit-zero", action="store_true", help="exit 0 even when there are findings")
    parser.add_argument("--statistics", action="store_true", help="count findings by rule instead of showing them")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Check the paths; returns the exit code."""
    options = parser().parse_args(arguments)
    paths, texts = from_stdin(options.paths, options.stdin_filename)
    session = Session(configs(options), _layer(options), texts)
    if options.select or options.ignore:
        rules_for(session.settings_for("."))  # a rule that does not exist is an error even where nothing is to be checked
    if options.since is not None:
        inputs = gather(changed_since(options.since, paths), session, force_exclude=True)
    else:
        inputs = gather(paths, session, force_exclude=options.force_exclude)
    if options.fix or options.unsafe_fixes or options.diff:
        from memlint.cli.fix import fix_and_report

        return fix_and_report(inputs, session, options)
    result = examine(inputs, session, ignores=not options.no_ignores, accepted=not options.no_ignores, baseline=options.baseline)
    report(result, options.format, session, options.statistics, sys.stdout)
    return exit_code(result, session, exit_zero=options.exit_zero)


def _layer(options: SimpleNamespace) -> Callable[[Settings], Settings]:
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


def report(
    result: CheckResult, formats: Sequence[tuple[str, str | None]], session: Session, statistics: bool, stream: TextIO
) -> None:
    """Write every format asked for; `full` to the stream when nothing else goes there."""
    outputs = list(formats) if any(file is None for _, file in formats) else [*formats, ("full", None)]
    if any(name in SHOW_EFFECTS for name, _ in outputs):
        result = with_effects(result)
        if any(finding.fixes for finding in result.findings):
            from memlint.cli.fix import with_edits

            result = with_edits(result, session)
    for name, file in outputs:
        if file is not None:
            write_file(file, render(name, result, Style()))
        elif statistics:
            stream.write(_statistics(result))
        else:
            stream.write(render(name, result, for_stream(stream)))


SHOW_EFFECTS = ("full", "json", "jsonl", "markdown", "sarif", "rdjson")
"""Formats that say what a fix would do to the memory or carry its edits; the others need no further estimates."""


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
