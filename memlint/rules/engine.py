"""Rules against an assessment: which apply, and what each one found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from memlint.assess import Assessment
from memlint.config import ConfigError, Settings
from memlint.facts import Fact, Problem, Status
from memlint.rules.expression import UNKNOWN, ExpressionError, Unknown
from memlint.rules.finding import Confidence, Finding, Fix, Label, ordered
from memlint.rules.kinds import Kind
from memlint.rules.kinds import check as check_kinds
from memlint.rules.page import PageError, Rule, read_rule
from memlint.rules.scope import Facts, Names
from memlint.source import Span

_TERMS_OF_ESTIMATE = ("estimate", "verdict", "largest")


def pages_folder() -> Path:
    """Where memlint's own pages are: beside this module when installed, `rules/` in a checkout."""
    installed = Path(__file__).parent / "pages"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "rules"


def load_rules(settings: Settings | None = None) -> tuple[Rule, ...]:
    """memlint's rules and the team's own (`rules = [...]`), in the order of their codes.

    A team's page is checked against the known facts and terms (memlint's own are in its tests). Raises `ConfigError`.
    """
    own = [read_rule(path) for path in sorted(pages_folder().glob("MEM*.md"))]
    team = [_team_rule(path) for folder in (settings.rules if settings else ()) for path in sorted(folder.glob("*.md"))]
    taken: dict[str, Rule] = {}
    for rule in (*own, *team):
        for identity in (rule.code, rule.name, *rule.aliases):
            other = taken.setdefault(identity, rule)
            if other is not rule:
                raise ConfigError(f"{identity} is already the rule of {other.path}", rule.path)
    return tuple(sorted((*own, *team), key=lambda rule: rule.code))


def find_rule(rules: Iterable[Rule], name: str) -> Rule | None:
    """A rule by its code, name or former name."""
    wanted = name.strip()
    return next((r for r in rules if wanted.upper() == r.code or wanted.lower() in (r.name, *r.aliases)), None)


def selected(rules: Sequence[Rule], settings: Settings) -> tuple[Rule, ...]:
    """The rules that `select` and `ignore` leave; raises `ConfigError` for a selector that names no rule.

    Of two selectors that match a rule the more exact (longer) one decides, `ignore` when they are equal.
    """
    for selector in (*settings.select, *settings.ignore):
        if not any(rule.matches(selector) for rule in rules):
            raise ConfigError(f"no rule is called {selector!r}{_close_to(selector, rules)}")

    def wanted(rule: Rule) -> bool:
        chosen = _exactness(rule, settings.select) if settings.select else 0
        return chosen >= 0 and chosen > _exactness(rule, settings.ignore)

    return tuple(rule for rule in rules if wanted(rule))


def check(assessment: Assessment, rules: Iterable[Rule], settings: Settings | None = None) -> list[Finding]:
    """What the rules find in one run, in file order. Fingerprints and suppressions come later, over whole files."""
    chosen = selected(tuple(rules), settings) if settings else rules
    return ordered(finding for rule in chosen for finding in _findings(assessment, rule))


def decide(assessment: Assessment, rule: Rule) -> bool | Unknown:
    """Whether a rule's condition holds for a run; unknown when facts are missing or nothing names a card.

    Of a fragment (an accelerate or DeepSpeed file alone) only its own problems are decided.
    """
    condition = rule.when
    if condition is None:
        return False
    if assessment.is_fragment and not condition.problems:
        return UNKNOWN
    return condition.decide(Facts(assessment))


def finding_of(rule: Rule, span: Span, scope: Facts, logical: str, labels: tuple[Label, ...] = ()) -> Finding:
    """A finding of a rule at a place."""
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        confidence=_confidence(rule, scope),
        message=rule.message.render(scope),
        span=span,
        labels=labels,
        fixes=_fixes(rule, scope),
        logical=logical,
    )


def _findings(assessment: Assessment, rule: Rule) -> Iterator[Finding]:
    if decide(assessment, rule) is not True:
        return
    asked = rule.when.problems if rule.when else ()
    problems = [problem for problem in assessment.run.problems if problem.name in asked]
    for problem in problems:
        yield _finding_of_problem(rule, assessment, problem)
    if not problems:
        scope = Facts(assessment)
        span, logical = _place(rule, assessment)
        yield finding_of(rule, span, scope, logical, tuple(_labels(rule, scope, span, logical)))


def _finding_of_problem(rule: Rule, assessment: Assessment, problem: Problem) -> Finding:
    labels = tuple(Label(span, "and here") for span in problem.related)
    return finding_of(rule, problem.span, Facts(assessment, problem.message), problem.name, labels)


def _place(rule: Rule, assessment: Assessment) -> tuple[Span, str]:
    """Where the first of the rule's facts is written that is written anywhere, else the run itself."""
    for key in rule.at:
        span = _written_at(assessment.run.fact(key))
        if span is not None:
            return span, key
    return assessment.run.span, rule.at[0] if rule.at else rule.name


def _written_at(fact: Fact) -> Span | None:
    """The place that states a value; None for a library's default or an unknown."""
    return next((origin.span for origin in fact.origin if origin.span), None) if fact.values else None


def _labels(rule: Rule, scope: Facts, span: Span, logical: str) -> Iterator[Label]:
    """The chain that brought the value here, then the other facts that the rule shows."""
    seen = {span}
    for origin in scope.assessment.run.fact(logical).origin[1:]:
        if origin.span and origin.span not in seen:
            seen.add(origin.span)
            yield Label(origin.span, origin.note or f"{logical} comes through here")
    for key, text in rule.labels:
        place = _written_at(scope.assessment.run.fact(key))
        if place and place not in seen:
            seen.add(place)
            yield Label(place, text.render(scope))


def _fixes(rule: Rule, scope: Facts) -> tuple[Fix, ...]:
    """The rule's fix when every value it sets can be computed."""
    changes: dict[str, Any] = {}
    for change in rule.changes:
        expression = change.expression
        changes[change.key] = expression.value(scope) if expression else change.value
    if rule.fix_title is None or any(value is UNKNOWN for value in changes.values()):
        return ()
    return (Fix(rule.fix_title.render(scope), changes, rule.safety),)


def _confidence(rule: Rule, scope: Facts) -> Confidence:
    """The weakest of what the finding rests on, at most what the page allows."""
    names = rule.when.names if rule.when else ()
    on_estimate = any(name.partition(".")[0] in _TERMS_OF_ESTIMATE for name in names)
    on_model = on_estimate or any(name.startswith("architecture.") for name in names)
    lookup = scope.assessment.lookup
    if (on_model and lookup is not None and not lookup.exact) or (on_estimate and scope.assessment.sharding_guessed):
        return Confidence.GUESSED
    several = any(scope.assessment.run.fact(name).status is Status.CHOICES for name in names)
    found = Confidence.BOUNDED if on_estimate or several else Confidence.PROVED
    return max(found, rule.confidence, key=list(Confidence).index)


def _exactness(rule: Rule, selectors: Iterable[str]) -> int:
    """How exactly the best of the selectors names a rule: -1 not at all, 0 ALL, else its length (a name is a code)."""
    ranks = [-1]
    for selector in selectors:
        if rule.matches(selector):
            full = selector in (rule.code, rule.name, *rule.aliases)
            ranks.append(0 if selector == "ALL" else len(rule.code) if full else len(selector))
    return max(ranks)


def _close_to(selector: str, rules: Iterable[Rule]) -> str:
    from difflib import get_close_matches

    names = [identity for rule in rules for identity in (rule.code, rule.name)]
    close = get_close_matches(selector, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _team_rule(path: Path) -> Rule:
    try:
        rule = read_rule(path)
        verify(rule)
    except PageError as error:
        raise ConfigError(error.message, error.path, error.line) from None
    return rule


def verify(rule: Rule) -> None:
    """Raise `PageError` when a page names a fact or term that does not exist, or compares unlike kinds."""
    from memlint.facts.keys import KEYS

    names = Names()
    templates = [rule.message, *(text for _, text in rule.labels), *((rule.fix_title,) if rule.fix_title else ())]
    try:
        if rule.when:
            check_kinds(rule.when, names)
        for expression in (part for template in templates for part in template.expressions()):
            check_kinds(expression, names, Kind.ANY)
        for expression in filter(None, (change.expression for change in rule.changes)):
            check_kinds(expression, names, Kind.ANY)
        for key in (*rule.at, *(key for key, _ in rule.labels), *(change.key for change in rule.changes)):
            if key not in KEYS:
                raise ExpressionError(f"there is no fact {key!r}")
    except ExpressionError as error:
        raise PageError(str(error), rule.path) from None
