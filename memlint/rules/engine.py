"""Rules against an assessment: which apply, and what each one found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memlint.assess import Assessment, saves
from memlint.config import Settings
from memlint.facts import Fact, Status
from memlint.rules.catalogue import selected
from memlint.rules.expression import UNKNOWN, Unknown
from memlint.rules.finding import Confidence, Finding, Fix, Label, ordered
from memlint.rules.rule import Rule
from memlint.rules.scope import Facts, problems_of
from memlint.source import Span
from memlint.typed import Any

_TERMS_OF_ESTIMATE = ("estimate", "verdict", "largest")
_ABOUT_MEMORY = (*_TERMS_OF_ESTIMATE, "fits_for_sure", "gpu.capacity")
"""A rule whose condition has one of these speaks because of memory: its fix must lower it."""


def check(assessment: Assessment, rules: Iterable[Rule], settings: Settings | None = None) -> list[Finding]:
    """What the rules find in one run, in file order. Fingerprints and suppressions come later, over whole files."""
    chosen = selected(tuple(rules), settings) if settings else rules
    scope = Facts(assessment)
    return ordered(finding for rule in chosen for finding in _findings(rule, scope))


def decide(assessment: Assessment, rule: Rule) -> bool | Unknown:
    """Whether a rule's condition holds for a run; unknown when facts are missing or nothing names a card."""
    return _decided(rule, Facts(assessment))


def _decided(rule: Rule, scope: Facts) -> bool | Unknown:
    """Of a fragment (an accelerate or DeepSpeed file alone) only its own problems are decided."""
    condition = rule.when
    if condition is None:
        return False
    if scope.assessment.is_fragment and not condition.problems:
        return UNKNOWN
    return condition.decide(scope)


def _findings(rule: Rule, scope: Facts) -> Iterator[Finding]:
    if _decided(rule, scope) is not True:
        return
    problems = problems_of(scope.assessment, rule.when.problems if rule.when else ())
    for problem in problems:
        labels = tuple(Label(span, "and here") for span in problem.related)
        yield _finding(rule, problem.span, scope.about(problem), problem.name, labels)
    if not problems:
        span, logical = _place(rule, scope.assessment)
        yield _finding(rule, span, scope, logical, tuple(_labels(rule, scope, span, logical)))


def _finding(rule: Rule, span: Span, scope: Facts, logical: str, labels: tuple[Label, ...]) -> Finding:
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
        if place and place not in seen and text.known(scope):
            seen.add(place)
            yield Label(place, text.render(scope))


def _fixes(rule: Rule, scope: Facts) -> tuple[Fix, ...]:
    """The rule's fix, when every value it sets can be computed and, in a rule about memory, when it lowers the estimate."""
    changes: dict[str, Any] = {}
    for change in rule.changes:
        expression = change.expression
        changes[change.key] = expression.value(scope) if expression else change.value
    if rule.fix_title is None or any(value is UNKNOWN for value in changes.values()):
        return ()
    about_memory = rule.when is not None and any(
        name in _ABOUT_MEMORY or name.partition(".")[0] in _ABOUT_MEMORY for name in rule.when.names
    )
    if about_memory and scope.assessment.estimate is not None and not saves(scope.assessment, changes):
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
