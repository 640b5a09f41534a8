"""A team's own pages: read as memlint's are, and checked against the facts and terms there are."""

from __future__ import annotations

import os
from collections.abc import Iterator

from memlint.config_file import ConfigError
from memlint.facts.keys import KEYS
from memlint.rules.expression import ExpressionError, Kind
from memlint.rules.kinds import check
from memlint.rules.page import PageError, read_rule
from memlint.rules.rule import Rule
from memlint.rules.terms import PHASES, TERMS, VERDICTS


def team_rules(folder: str) -> Iterator[Rule]:
    """The rules of a folder, by name. Raises `ConfigError`."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if name.endswith(".md") and name != "README.md":
            try:
                rule = read_rule(os.path.join(folder, name))
                verify(rule)
            except PageError as error:
                raise ConfigError(error.message, error.path, error.line) from None
            yield rule


def verify(rule: Rule) -> None:
    """Raise `PageError` when a page names a fact or term that does not exist, or compares unlike kinds."""
    names = Names()
    try:
        if rule.when:
            check(rule.when, names)
        for expression in rule.computed():
            check(expression, names, Kind.ANY)
        for key in (*rule.at, *(key for key, _ in rule.labels), *(change.key for change in rule.changes)):
            if key not in KEYS:
                raise ExpressionError(f"there is no fact {key!r}")
    except ExpressionError as error:
        raise PageError(str(error), rule.path) from None


_FACT_KINDS = {"bool": Kind.BOOL, "int": Kind.NUMBER, "number": Kind.NUMBER, "text": Kind.TEXT}


class Names:
    """The schema of facts and terms (see `kinds.Schema`); pages are checked against it."""

    def kind(self, name: str) -> Kind | None:
        """What a name is, or None when there is no such name."""
        if name in TERMS:
            return TERMS[name].kind
        key = KEYS.get(name)
        return None if key is None else _FACT_KINDS.get(key.kind, Kind.ANY)

    def allowed(self, name: str) -> tuple[str, ...]:
        """The texts a name may be; empty when any."""
        if name == "verdict":
            return VERDICTS
        if name == "estimate.peak_phase":
            return PHASES
        return KEYS[name].values if name in KEYS else ()
