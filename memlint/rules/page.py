"""A rule is one Markdown page: front matter is the rule, the text is its documentation, the fenced cases are its tests.

Front matter (YAML): `code`, `name`, `severity`, `since`, `when` (see `expression`; a page without it is raised by
memlint itself), `message` (a template), `at` (facts whose place the finding takes, the first that has one), `labels`
(fact: template), `fix` (`title` and `changes`: fact: value, `= expression` for a computed one), `safety`,
`confidence` (a ceiling), `versions`, `references`, `aliases`.

A template is text with `{expression}` or `{expression|bytes}`, `{...|percent}`, `{...|count}`.

A check reads none of memlint's own pages: what they say lies in `index`, written by `tools/index_rules.py`, because reading
YAML takes longer than reading the script to be checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memlint.rules.finding import Confidence, Safety, Severity
from memlint.rules.rule import FIRST_SECTION, Change, Rule, Template
from memlint.typed import Any, NamedTuple

SECTIONS = (
    FIRST_SECTION,
    "Why it matters",
    "The arithmetic",
    "Bad / Good",
    "What the fix costs",
    "How sure we are",
    "When to ignore it",
)
MAX_PAGE_BYTES = 256 * 1024


class PageError(Exception):
    """A rule page that is not one, with its path and line."""

    def __init__(self, message: str, path: str, line: int = 1) -> None:
        super().__init__(f"{path}:{line}: {message}")
        self.message, self.path, self.line = message, path, line


def read_rule(path: str) -> Rule:
    """The rule of a page; only its front matter is read. Raises `PageError`."""
    front, _ = split(path)
    return _Reader(path, front, mapping_of(front, path)).rule()


def mapping_of(front: str, path: str) -> Mapping[str, Any]:
    """Front matter as YAML has it. Raises `PageError`."""
    import yaml

    try:
        data = yaml.load(front, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise PageError("front matter is not YAML", path, mark.line + 2 if mark else 1) from None
    if not isinstance(data, dict):
        raise PageError("front matter is not a mapping", path)
    return data


def split(path: str) -> tuple[str, str]:
    """Front matter and text of a page."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_PAGE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise PageError(f"cannot be read: {error}", path) from None
    end = text.find("\n---\n", 3)
    if not text.startswith("---\n") or end < 0:
        raise PageError("a rule page starts with front matter between two lines of ---", path)
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
