"""A rule: its condition, what it says, and what it would change. Its page is its documentation (see `page`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memlint.rules.expression import UNKNOWN, Expression, ExpressionError, Scope, parse
from memlint.rules.finding import Confidence, Safety, Severity
from memlint.typed import Any, NamedTuple

FIRST_SECTION = "What it checks"
_PLACEHOLDER = r"\{([^{}|]+)(?:\|(\w+))?\}"


class Template(NamedTuple):
    """Text with expressions in it."""

    text: str

    def expressions(self) -> tuple[Expression, ...]:
        """The expressions in it; raises `ExpressionError`, also for a format that does not exist."""
        placeholders = re.findall(_PLACEHOLDER, self.text)
        for _, form in placeholders:
            if form and form not in _FORMS:
                raise ExpressionError(f"there is no format {form!r}, only {', '.join(_FORMS)}")
        return tuple(parse(text) for text, _ in placeholders)

    def render(self, scope: Scope) -> str:
        """The text with every expression replaced; an unknown one reads "unknown", several values "a or b"."""
        return re.sub(_PLACEHOLDER, lambda match: _rendered(parse(match[1]), match[2] or "", scope), self.text)

    def known(self, scope: Scope) -> bool:
        """True when nothing in it would read "unknown"."""
        return "unknown" not in {_rendered(parse(text), form, scope) for text, form in re.findall(_PLACEHOLDER, self.text)}


class Change(NamedTuple):
    """What a fix sets one fact to: a value, or an expression (`= ...`) that gives it."""

    key: str
    value: Any

    @property
    def expression(self) -> Expression | None:
        """The expression, when it is one."""
        return parse(self.value[1:]) if isinstance(self.value, str) and self.value.startswith("=") else None


class Rule(NamedTuple):
    """One rule, as its page's front matter says. Expressions are read when they are first asked for."""

    code: str
    name: str
    severity: Severity
    since: str
    condition: str
    message: Template
    at: tuple[str, ...] = ()
    labels: tuple[tuple[str, Template], ...] = ()
    fix_title: Template | None = None
    changes: tuple[Change, ...] = ()
    safety: Safety = Safety.SUGGEST
    confidence: Confidence = Confidence.PROVED
    """The most that a finding of this rule claims."""
    versions: str = ""
    references: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    path: str = ""

    @property
    def when(self) -> Expression | None:
        """The condition; None for a rule that memlint raises itself."""
        return parse(self.condition) if self.condition else None

    def computed(self) -> Iterator[Expression]:
        """The expressions in what it says and changes. Raises `ExpressionError`."""
        for template in (self.message, *(text for _, text in self.labels), *filter(None, (self.fix_title,))):
            yield from template.expressions()
        yield from filter(None, (change.expression for change in self.changes))

    @property
    def page(self) -> str:
        """The page's text, read from its file."""
        from memlint.rules.page import split  # a check shows no pages

        return split(self.path)[1]

    @property
    def summary(self) -> str:
        """The first paragraph of "What it checks", on one line."""
        text = self.page.partition(f"## {FIRST_SECTION}")[2].strip()
        return " ".join(text.partition("\n\n")[0].split())

    @property
    def headline(self) -> str:
        """The first sentence of the summary, without its full stop."""
        return self.summary.partition(". ")[0].rstrip(".")

    def matches(self, selector: str) -> bool:
        """True for its code, a prefix of it, its name, a former name, or ALL."""
        return selector == "ALL" or self.code.startswith(selector) or selector == self.name or selector in self.aliases

    def row(self) -> tuple[Any, ...]:
        """The rule as plain values, without its path: what the index of memlint's own pages holds (see `from_row`)."""
        labels = tuple((key, text.text) for key, text in self.labels)
        changes = tuple((change.key, change.value) for change in self.changes)
        title = self.fix_title.text if self.fix_title else None
        texts = (self.code, self.name, self.severity.value, self.since, self.condition, self.message.text, self.at)
        limits = (self.safety.value, self.confidence.value, self.versions, self.references, self.aliases)
        return (*texts, labels, title, changes, *limits)


def from_row(row: tuple[Any, ...], path: str) -> Rule:
    """The rule that `Rule.row` was made of."""
    code, name, severity, since, condition, message, at, labels, title, changes, safety, confidence, *rest = row
    versions, references, aliases = rest
    return Rule(
        code,
        name,
        Severity(severity),
        since,
        condition,
        Template(message),
        at,
        tuple((key, Template(text)) for key, text in labels),
        Template(title) if title is not None else None,
        tuple(Change(key, value) for key, value in changes),
        Safety(safety),
        Confidence(confidence),
        versions,
        references,
        aliases,
        path,
    )


def _rendered(expression: Expression, form: str, scope: Scope) -> str:
    alternatives = scope.values(expression.names[0]) if _is_name(expression) else ()
    values = alternatives if len(alternatives) > 1 else (expression.value(scope),)
    return " or ".join(show(value, form) for value in values)


def _is_name(expression: Expression) -> bool:
    return expression.names == (expression.text.strip(),)


def show(value: Any, form: str = "") -> str:
    """A value as a message says it."""
    if value is UNKNOWN:
        return "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    if form and isinstance(value, (int, float)):
        return _FORMS[form](value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(show(item) for item in value)
    return "none" if value is None else str(value)


def _size(value: float) -> str:
    """Bytes as people read them: GiB with one decimal, MiB below a GiB, KiB below a MiB."""
    if abs(value) >= 2**30:
        return f"{value / 2**30:.1f} GiB"
    return f"{value / 2**20:.0f} MiB" if abs(value) >= 2**20 else f"{value / 2**10:.0f} KiB"


def _count(value: float) -> str:
    """A number of parameters: 6.7B, 350M."""
    for factor, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:g}"


_FORMS = {"bytes": _size, "percent": lambda value: f"{value:.0%}", "count": _count}
