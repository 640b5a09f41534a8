"""Launches in Makefiles and Dockerfiles.

Make reads the whole file before it runs a recipe, so a recipe sees the variables' last values, those of its own target first. Every
variable can be set on make's command line; `?=` says that one is meant to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from memlint.facts import Status
from memlint.launch.shell_text import Shell
from memlint.read.shell import Joined, Lines, Piece, Value
from memlint.source import Source
from memlint.typed import NamedTuple

DEFINITION = re.compile(
    r"^(?:override[ \t]+)?(?:export[ \t]+)?([A-Za-z_][\w.-]*)[ \t]*(\?|::?:?|\+)?=[ \t]*((?:[^\\\n#]|\\(?:.|\n))*?)[ \t]*(?:#.*)?$"
)
RULE = re.compile(r"^([^\s:=#][^:=#]*):(?!=)[ \t]*(.*)$", re.DOTALL)
REFERENCE = re.compile(r"\$\$|\$[({]([A-Za-z_][\w.-]*)[)}]|\$@|\$<|\$\([^()]*\)")
INSTRUCTION = re.compile(r"^[ \t]*(ENV|ENTRYPOINT|CMD)[ \t]+((?:[^\\\n]|\\\n|\\.)*)", re.MULTILINE | re.IGNORECASE)
CONDITION = re.compile(r"^[ \t]*(ifn?eq|ifn?def|else|endif)\b[ \t]*(\w*)")
MAX_DEPTH = 8
"""Variables that refer to one another are followed so far."""


class _Text(NamedTuple):
    """A recursive variable: the characters `start:end`, expanded where it is used; `before` is what `+=` adds to."""

    start: int
    end: int
    status: Status = Status.FIXED
    reason: str = ""
    before: Value | _Text | None = None


Variables = Mapping[str, "Value | _Text"]


class _Recipe(NamedTuple):
    targets: tuple[str, ...]
    rows: tuple[tuple[int, int], ...]


def makefile(source: Source) -> Iterator[Shell]:
    """The recipe of each target, with the file's variables put in."""
    lines = Lines(source.path, "\n".join(source.lines))
    variables: dict[str, Value | _Text] = {}
    own: dict[str, dict[str, Value | _Text]] = {}
    recipes: list[_Recipe] = []
    guards: list[str] = []
    targets: tuple[str, ...] = ()
    rows: list[tuple[int, int]] = []
    for start, end in _logical(lines.text):
        row = lines.text[start:end]
        if row.startswith("\t") and targets:
            rows.append((start, end))
            continue
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        if rows:
            recipes.append(_Recipe(targets, tuple(rows)))
            rows, targets = [], ()
        condition = CONDITION.match(row)
        if condition is not None:
            _guard(guards, condition.group(1), condition.group(2))
            continue
        found = DEFINITION.match(row)
        if found is not None:
            _define(lines, found, start, variables, guards)
            continue
        rule = RULE.match(row)
        if rule is not None:
            targets = tuple(rule.group(1).split())
            found = DEFINITION.match(rule.group(2))
            if found is not None:
                for target in targets:
                    _define(lines, found, start + rule.start(2), own.setdefault(target, {}), guards, variables)
                targets = ()
    if rows:
        recipes.append(_Recipe(targets, tuple(rows)))
    for recipe in recipes:
        scope = {**variables, **own.get(recipe.targets[0], {})} if recipe.targets else variables
        pieces: list[Piece] = []
        for start, end in recipe.rows:
            skip = len(lines.text[start:end]) - len(lines.text[start:end].lstrip("\t @-+"))
            pieces.extend((*_expanded(lines, start + skip, end, scope), Piece("\n")))
        yield Shell(Joined(tuple(pieces)), {}, {})


def _logical(text: str) -> Iterator[tuple[int, int]]:
    """The rows of the file, those that end in a backslash together with the next one."""
    start = position = 0
    for row in text.split("\n"):
        position += len(row) + 1
        if not row.endswith("\\"):
            yield start, position - 1
            start = position
    if start < len(text):
        yield start, len(text)


def _guard(guards: list[str], word: str, name: str) -> None:
    """Keep the conditions that are open; of `ifndef NAME` the name, for it is how defaults were written before `?=`."""
    if word.startswith("if"):
        guards.append(name if word == "ifndef" else "?")
    elif guards:
        guards.pop()
        if word == "else":
            guards.append("?")


def _define(
    lines: Lines,
    found: re.Match[str],
    offset: int,
    variables: dict[str, Value | _Text],
    guards: list[str],
    outer: Variables | None = None,
) -> None:
    name, operator, _ = found.groups()
    start, end = offset + found.start(3), offset + found.end(3)
    inside = next((guard for guard in reversed(guards) if guard), "")
    if inside and inside != name:
        variables[name] = _Text(start, end, Status.UNKNOWN, f"${name} depends on a condition of the Makefile")
    elif operator == "?" or inside:
        if name not in variables:
            variables[name] = _Text(start, end, Status.DEFAULT)
    elif operator == "+":
        variables[name] = _Text(start, end, before=variables.get(name) or (outer or {}).get(name))
    elif operator:
        variables[name] = tuple(_expanded(lines, start, end, {**(outer or {}), **variables}))
    else:
        variables[name] = _Text(start, end)


def _expanded(lines: Lines, start: int, end: int, variables: Variables, depth: int = MAX_DEPTH) -> list[Piece]:
    """Make text with `$(NAME)` replaced and `$$` as `$`."""
    pieces: list[Piece] = []
    for match in REFERENCE.finditer(lines.text, start, end):
        pieces.extend(lines.pieces(start, match.start()))
        name = match.group(1)
        if match.group() == "$$":
            pieces.append(Piece("$", lines, match.start()))
        elif name in variables and depth:
            pieces.extend(_value(lines, variables[name], variables, depth - 1))
        else:
            reason = f"${name} is not set in the Makefile" if name else f"{match.group()} is only known to make"
            pieces.append(Piece(match.group(), lines, match.start(), Status.UNKNOWN, reason))
        start = match.end()
    pieces.extend(lines.pieces(start, end))
    return [piece for piece in pieces if piece.text]


def _value(lines: Lines, variable: Value | _Text, variables: Variables, depth: int) -> list[Piece]:
    if not isinstance(variable, _Text):
        return list(variable)
    if variable.status is Status.UNKNOWN:
        return [Piece(lines.text[variable.start : variable.end], lines, variable.start, Status.UNKNOWN, variable.reason)]
    pieces = _expanded(lines, variable.start, variable.end, variables, depth)
    if variable.status is Status.DEFAULT:
        pieces = [Piece(p.text, p.lines, p.at, Status.DEFAULT) if p.status is Status.FIXED else p for p in pieces]
    if variable.before is not None and depth:
        pieces = [*_value(lines, variable.before, variables, depth - 1), Piece(" "), *pieces]
    return pieces


def dockerfile(source: Source) -> Iterator[Shell]:
    """`ENTRYPOINT` and `CMD`, in shell form or as a JSON list, with the `ENV` lines above them."""
    lines = Lines(source.path, "\n".join(source.lines))
    environment: dict[str, Value] = {}
    words: dict[str, list[Piece]] = {}
    for match in INSTRUCTION.finditer(lines.text):
        keyword, body = match.group(1).upper(), match.group(2)
        if keyword == "ENV":
            for pair in re.finditer(r"(\w+)[= ](\S+)", body):
                environment[pair.group(1)] = lines.pieces(match.start(2) + pair.start(2), match.start(2) + pair.end(2))
        elif body.lstrip().startswith("["):
            words[keyword] = list(_json_words(lines, match.start(2), body))
        else:
            words[keyword] = list(lines.pieces(match.start(2), match.end(2)))
    whole = [piece for keyword in ("ENTRYPOINT", "CMD") for piece in words.get(keyword, [])]
    if whole:
        yield Shell(Joined(tuple(whole)), environment, {})


def _json_words(lines: Lines, offset: int, body: str) -> Iterator[Piece]:
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"', body):
        yield Piece("'")
        yield from (p for p in lines.pieces(offset + match.start(1), offset + match.end(1)) if p.text)
        yield Piece("' ")
