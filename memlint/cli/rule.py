"""`memlint rule`: the page of one rule, or the list of all."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from memlint.cli.arguments import Parser
from memlint.cli.failure import Failure
from memlint.cli.options import did_you_mean
from memlint.config import Configs
from memlint.report.style import SEVERITY_COLOURS, for_stream
from memlint.rules.catalogue import find_rule, load_rules
from memlint.rules.rule import Rule


def run(arguments: Sequence[str]) -> int:
    """Print a rule's page (drawn with rich on a terminal), or one line per rule."""
    parser = Parser("rule", "The page of a rule: what it checks, the arithmetic, what the fix costs, how sure we are.")
    parser.add_argument("rule", nargs="?", metavar="CODE|NAME", help="a code such as MEM010 or a name; none lists all rules")
    parser.add_argument("--all", action="store_true", help="every page")
    parser.add_argument("--format", choices=("full", "json"), default="full")
    options = parser.parse_args(arguments)
    rules = load_rules(Configs().settings_for("."))
    if options.rule is None:
        chosen = list(rules)
    else:
        rule = find_rule(rules, options.rule)
        if rule is None:
            names = [name for known in rules for name in (known.code, known.name)]
            raise Failure(f"no rule is called {options.rule!r}{did_you_mean(options.rule, names)} (memlint rule lists them)")
        chosen = [rule]
    if options.format == "json":
        sys.stdout.write(json.dumps([_object(rule) for rule in chosen], indent=2) + "\n")
    elif options.rule is None and not options.all:
        sys.stdout.write(_list(chosen))
    else:
        for rule in chosen:
            _show(rule)
    return 0


def _object(rule: Rule) -> dict[str, object]:
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "confidence": rule.confidence.value,
        "since": rule.since,
        "safety": rule.safety.value if rule.fix_title else None,
        "versions": rule.versions,
        "references": list(rule.references),
        "summary": rule.summary,
        "page": rule.page,
    }


def _list(rules: Sequence[Rule]) -> str:
    style = for_stream(sys.stdout)
    widest = max((len(rule.name) for rule in rules), default=0)
    lines = []
    for rule in rules:
        severity = style.paint(f"{rule.severity.value:<8}", SEVERITY_COLOURS[rule.severity.value])
        lines.append(f"{style.bold(rule.code)}  {rule.name:<{widest}}  {severity} {rule.headline}".rstrip())
    return "".join(line + "\n" for line in lines)


def _show(rule: Rule) -> None:
    """Markdown as it is for a pipe, drawn for a terminal."""
    if not for_stream(sys.stdout).colour:
        sys.stdout.write(rule.page.lstrip("\n"))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(rule.page))
