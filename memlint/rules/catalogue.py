"""The rules there are: memlint's own pages and a team's, by name and by selection."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache

from memlint.config import ConfigError, Settings
from memlint.rules.index import ROWS
from memlint.rules.rule import Rule, from_row


def pages_folder() -> str:
    """Where memlint's own pages are: beside this module when installed, `rules/` in a checkout."""
    here = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(here, "pages")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(os.path.dirname(here)), "rules")


def load_rules(settings: Settings | None = None) -> tuple[Rule, ...]:
    """memlint's rules and the team's own (`rules = [...]`), in the order of their codes.

    A team's page is checked against the known facts and terms (memlint's own are in its tests). Raises `ConfigError`.
    """
    pages = pages_folder()
    own = [from_row(row, os.path.join(pages, page)) for page, row in ROWS.items()]
    team: list[Rule] = []
    for folder in settings.rules if settings else ():
        from memlint.rules.team import team_rules  # loads the page reader, and YAML

        team += team_rules(folder)
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
