"""The rules there are: memlint's own pages and a team's, by name and by selection."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from memlint.config import ConfigError, Settings
from memlint.facts.keys import KEYS
from memlint.rules.expression import ExpressionError
from memlint.rules.kinds import Kind
from memlint.rules.kinds import check as check_kinds
from memlint.rules.page import INDEX, PageError, Rule, read_rule
from memlint.rules.terms import Names


def pages_folder() -> Path:
    """Where memlint's own pages are: beside this module when installed, `rules/` in a checkout."""
    installed = Path(__file__).parent / "pages"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "rules"


def load_rules(settings: Settings | None = None) -> tuple[Rule, ...]:
    """memlint's rules and the team's own (`rules = [...]`), in the order of their codes.

    A team's page is checked against the known facts and terms (memlint's own are in its tests). Raises `ConfigError`.
    """
    pages = pages_folder()
    index = json.loads((pages / INDEX).read_text(encoding="utf-8"))
    own = [read_rule(path, index) for path in sorted(pages.glob("MEM*.md"))]
    folders = settings.rules if settings else ()
    team = [_team_rule(path) for folder in folders for path in sorted(folder.glob("*.md")) if path.name != "README.md"]
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
            raise ConfigError(f"no rule is called {selector!r}{close_to(selector, rules)}")

    def wanted(rule: Rule) -> bool:
        chosen = _exactness(rule, settings.select) if settings.select else 0
        return chosen >= 0 and chosen > _exactness(rule, settings.ignore)

    return tuple(rule for rule in rules if wanted(rule))


@lru_cache(maxsize=1)
def claimed_problems() -> frozenset[str]:
    """The problems that a page of memlint names; the others go to the page that takes any."""
    return frozenset(name for rule in load_rules() if rule.when for name in rule.when.problems)


def _exactness(rule: Rule, selectors: Iterable[str]) -> int:
    """How exactly the best of the selectors names a rule: -1 not at all, 0 ALL, else its length (a name is a code)."""
    ranks = [-1]
    for selector in selectors:
        if rule.matches(selector):
            full = selector in (rule.code, rule.name, *rule.aliases)
            ranks.append(0 if selector == "ALL" else len(rule.code) if full else len(selector))
    return max(ranks)


def close_to(selector: str, rules: Iterable[Rule]) -> str:
    """ "; did you mean ...?" with the rule that resembles a name most; empty when none does."""
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
