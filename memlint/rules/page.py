"""A rule is one Markdown page: front matter is the rule, the text is its documentation, the fenced cases are its tests.

Front matter (YAML): `code`, `name`, `severity`, `since`, `when` (see `expression`; a page without it is raised by
memlint itself), `message` (a template), `at` (facts whose place the finding takes, the first that has one), `labels`
(fact: template), `fix` (`title` and `changes`: fact: value, `= expression` for a computed one), `safety`,
`confidence` (a ceiling), `versions`, `references`, `aliases`.

A template is text with `{expression}` or `{expression|bytes}`, `{...|percent}`, `{...|count}`.

The front matter of memlint's own pages lies beside them as JSON (`INDEX`, written by `tools/index_rules.py`), because reading
it as YAML takes longer than reading the script to be checked. It counts only for the very text that it was made of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from memlint.rules.expression import UNKNOWN, Expression, ExpressionError, Scope, parse
from memlint.rules.finding import Confidence, Safety, Severity
from memlint.typed import Any, NamedTuple

SECTIONS = (
    "What it checks",
    "Why it matters",
    "The arithmetic",
    "Bad / Good",
    "What the fix costs",
    "How sure we are",
    "When to ignore it",
)
MAX_PAGE_BYTES = 256 * 1024
_PLACEHOLDER = re.compile(r"\{([^{}|]+)(?:\|(\w+))?\}")


class PageError(Exception):
    """A rule page that is not one, with its path and line."""

    def __init__(self, message: str, path: str, line: int = 1) -> None:
        super().__init__(f"{path}:{line}: {message}")
        self.message, self.path, self.line = message, path, line


class Template(NamedTuple):
    """Text with expressions in it."""

    text: str

    def expressions(self) -> tuple[Expression, ...]:
        """The expressions in it; raises `ExpressionError`, also for a format that does not exist."""
        placeholders = _PLACEHOLDER.findall(self.text)
        for _, form in placeholders:
            if form and form not in _FORMS:
                raise ExpressionError(f"there is no format {form!r}, only {', '.join(_FORMS)}")
        return tuple(parse(text) for text, _ in placeholders)

    def render(self, scope: Scope) -> str:
        """The text with every expression replaced; an unknown one reads "unknown", several values "a or b"."""
        return _PLACEHOLDER.sub(lambda match: _rendered(parse(match.group(1)), match.group(2) or "", scope), self.text)


class Change(NamedTuple):
    """What a fix sets one fact to: a value, or an expression (`= ...`) that gives it."""

    key: str
    value: Any

    @property
    def expression(self) -> Expression | None:
        """The expression, when it is one."""
        return parse(self.value[1:]) if isinstance(self.value, str) and self.value.startswith("=") else None


class Rule(NamedTuple):
    """One rule, as its page's front matter says. Expressions are compiled when they are first asked for."""

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
        """The compiled condition; None for a rule that memlint raises itself."""
        return parse(self.condition) if self.condition else None

    @property
    def page(self) -> str:
        """The page's text, read from its file."""
        return split(Path(self.path))[1]

    @property
    def summary(self) -> str:
        """The first paragraph of "What it checks", on one line."""
        text = self.page.partition(f"## {SECTIONS[0]}")[2].strip()
        return " ".join(text.partition("\n\n")[0].split())

    @property
    def headline(self) -> str:
        """The first sentence of the summary, without its full stop."""
        return self.summary.partition(". ")[0].rstrip(".")

    def matches(self, selector: str) -> bool:
        """True for its code, a prefix of it, its name, a former name, or ALL."""
        return selector == "ALL" or self.code.startswith(selector) or selector == self.name or selector in self.aliases


INDEX = "index.json"
"""Beside memlint's own pages: `{name of the page: [checksum of its front matter, the mapping it holds]}`."""


def read_rule(path: Path, index: Mapping[str, Any] | None = None) -> Rule:
    """The rule of a page; only its front matter is read, from the `index` when that knows this text. Raises `PageError`."""
    front, _ = split(path)
    checked, data = (index or {}).get(path.name, (None, None))
    if checked is None or checked != checksum(front):
        data = mapping_of(front, str(path))
    return _Reader(str(path), front, data).rule()


def checksum(front: str) -> int:
    """What tells whether an index entry was made of this front matter."""
    return crc32(front.encode())


def mapping_of(front: str, path: str) -> Mapping[str, Any]:
    """Front matter as YAML has it. Raises `PageError`."""
    import yaml  # slow to load, and needed for pages that are in no index only

    try:
        data = yaml.load(front, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise PageError("front matter is not YAML", path, mark.line + 2 if mark else 1) from None
    if not isinstance(data, dict):
        raise PageError("front matter is not a mapping", path)
    return data


def split(path: Path) -> tuple[str, str]:
    """Front matter and text of a page."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_PAGE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise PageError(f"cannot be read: {error}", str(path)) from None
    end = text.find("\n---\n", 3)
    if not text.startswith("---\n") or end < 0:
        raise PageError("a rule page starts with front matter between two lines of ---", str(path))
    return text[4 : end + 1], text[end + 5 :]


class _Reader(NamedTuple):
    """Makes a rule of front matter; every complaint carries the line of its key."""

    path: str
    front: str
    data: Mapping[str, Any]

    def rule(self) -> Rule:
        data = self.data
        unknown = [key for key in data if key not in (*_REQUIRED, *_OPTIONAL)]
        if unknown:
            raise self._error(f"unknown key {unknown[0]!r}", unknown[0])
        missing = [key for key in _REQUIRED if key not in data]
        if missing:
            raise self._error(f"{missing[0]} is missing", "")
        fix = self._table(data, "fix")
        return Rule(
            code=self._matching(data, "code", r"[A-Z]{3,8}\d{3}"),
            name=self._matching(data, "name", r"[a-z0-9]+(-[a-z0-9]+)*"),
            severity=self._enum(data, "severity", Severity, Severity.WARNING),
            since=str(data["since"]),
            condition=str(data.get("when", "")).strip(),
            message=Template(str(data["message"]).strip()),
            at=self._texts(data, "at"),
            labels=tuple((str(key), Template(str(text).strip())) for key, text in self._table(data, "labels").items()),
            fix_title=Template(str(fix["title"]).strip()) if fix.get("title") else None,
            changes=tuple(Change(str(key), value) for key, value in (fix.get("changes") or {}).items()),
            safety=self._enum(data, "safety", Safety, Safety.SUGGEST),
            confidence=self._enum(data, "confidence", Confidence, Confidence.PROVED),
            versions=str(data.get("versions", "")),
            references=self._texts(data, "references"),
            aliases=self._texts(data, "aliases"),
            path=self.path,
        )

    def _error(self, message: str, key: str) -> PageError:
        lines = self.front.splitlines()
        line = next((number for number, text in enumerate(lines, 2) if key and text.startswith(f"{key}:")), 1)
        return PageError(message, self.path, line)

    def _matching(self, data: Mapping[str, Any], key: str, pattern: str) -> str:
        if not isinstance(data[key], str) or not re.fullmatch(pattern, data[key]):
            raise self._error(f"{key}: {data[key]!r} does not look like {pattern}", key)
        return str(data[key])

    def _enum(self, data: Mapping[str, Any], key: str, kind: type[Any], otherwise: Any) -> Any:
        try:
            return kind(data[key]) if key in data else otherwise
        except ValueError:
            raise self._error(f"{key}: {data[key]!r} is none of {', '.join(e.value for e in kind)}", key) from None

    def _texts(self, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = data.get(key, [])
        if not isinstance(value, list):
            raise self._error(f"{key}: expected a list", key)
        return tuple(str(item) for item in value)

    def _table(self, data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = data.get(key) or {}
        if not isinstance(value, dict):
            raise self._error(f"{key}: expected a mapping", key)
        return value


_REQUIRED = ("code", "name", "severity", "since", "message")
_OPTIONAL = ("when", "at", "labels", "fix", "safety", "confidence", "versions", "references", "aliases")


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
    """Bytes as people read them: GiB with one decimal, MiB below 0.1 GiB, KiB below a MiB."""
    if abs(value) >= 0.1 * 2**30:
        return f"{value / 2**30:.1f} GiB"
    return f"{value / 2**20:.0f} MiB" if abs(value) >= 2**20 else f"{value / 2**10:.0f} KiB"


def _count(value: float) -> str:
    """A number of parameters: 6.7B, 350M."""
    for factor, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:g}"


_FORMS = {"bytes": _size, "percent": lambda value: f"{value:.0%}", "count": _count}
