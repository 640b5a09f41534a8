"""Write flags into a launch command: the value of a flag changes in place, a new flag goes after the last one.

Line continuations, quotes and the spelling of the other flags (`--x 1`, `--x=1`, `x=1`) are followed. Words that the
shell computes (`$BS`, `$(...)`) are not touched, apart from a default inside one (`${BS:-8}`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

from memlint.facts import Site
from memlint.fixes.edit import Edit, apply
from memlint.read.shell.parse import parse
from memlint.read.shell.syntax import ShellError, Simple, Word
from memlint.source import Places, Source, Span
from memlint.typed import Any

LAUNCH_WORDS = {"accelerate": "launch"}
"""Dialects whose flags belong to the launcher, before the script, and the word after which they go."""

SWITCHES = frozenset({"megatron", "sd_scripts"})
"""Dialects whose boolean flags take no value and are off unless given."""

_PREFIX = re.compile(r"(?:-{1,2})?[A-Za-z_][\w.-]*=")
_DEFAULT = re.compile(r"(\$\{[A-Za-z_]\w*:?[-=])([\w./+-]*)\}")


def set_value(source: Source, place: Span, value: Any) -> tuple[Edit, ...] | None:
    """The edits that replace the word (or the value of `name=value`) at a place: none when it says so already."""
    start, end = Places(source.text).range(place)
    edit = _word_edit(source, start, end, value)
    return edit if edit is None else _proved(source, edit)


def set_keys(
    source: Source,
    site: Site,
    values: Mapping[str, Any],
    place: Span | None = None,
) -> tuple[Edit, ...] | None:
    """The edits that give flags of the command at a site these values: none when it has them, None when impossible."""
    command = _Command.at(source, site.span)
    if command is None:
        return None
    edits: list[Edit] = []
    missing: dict[str, Any] = {}
    for name, value in values.items():
        stated = command.value_of(name)
        if stated is None:
            if not (value is False and site.dialect in SWITCHES):
                missing[name] = value
            continue
        changed = _word_edit(source, *stated, value)
        if changed is None:
            return None
        edits.extend(changed)
    if missing:
        inserted = command.insertion(missing, site.dialect)
        if inserted is None:
            return None
        edits.append(inserted)
    return _proved(source, tuple(edits))


def states(source: Source, site: Site, name: str) -> bool:
    """Whether the command at a site gives a flag."""
    command = _Command.at(source, site.span)
    return command is not None and command.value_of(name) is not None


class _Command:
    """A simple command of a script, with its words as ranges of the original text."""

    def __init__(self, source: Source, words: list[tuple[int, int]]) -> None:
        self.source, self.words = source, words
        self.texts = [source.text[start:end] for start, end in words]

    @classmethod
    def at(cls, source: Source, span: Span) -> _Command | None:
        """The innermost simple command that a place lies in."""
        plain = source.text.replace("\r\n", "\n")
        plain_places, places = Places(plain), Places(source.text)
        at = plain_places.offset(span.line, span.column)
        try:
            found = [node for node in _simple(parse(plain)) if node.start <= at < node.end and node.words]
        except (ShellError, RecursionError):
            return None
        if not found:
            return None
        command = min(found, key=lambda node: node.end - node.start)
        words = [(word.start, word.end) for word in command.words if isinstance(word, Word)]
        return cls(source, [tuple(places.offset(*plain_places.place(at)) for at in word) for word in words])  # type: ignore[misc]

    def value_of(self, name: str) -> tuple[int, int] | None:
        """The range of the word that holds a flag's value (`--name value`, `--name=value`, `name=value`)."""
        for index in reversed(range(len(self.texts))):
            text = self.texts[index]
            flag, equals, _ = text.lstrip("-").partition("=")
            if flag.replace("-", "_") != name or not (equals or text.startswith("-")):
                continue
            if equals:
                return self.words[index]
            follower = self.texts[index + 1] if index + 1 < len(self.texts) else "--"
            return self.words[index] if follower.startswith("--") else self.words[index + 1]
        return None

    def insertion(self, values: Mapping[str, Any], dialect: str) -> Edit | None:
        """The edit that adds flags: before words that pass others on (`"$@"`), after the rest."""
        written = [self._flag(name, value, dialect) for name, value in values.items()]
        if dialect in LAUNCH_WORDS:
            after = next((i for i, text in enumerate(self.texts) if text == LAUNCH_WORDS[dialect]), None)
            if after is None:
                return None
            at = self.words[after][1]
            return Edit(self.source.path, at, at, "".join(f" {flag}" for flag in written))
        last = len(self.texts) - 1
        while last > 0 and re.fullmatch(r"\"?\$(?:[@*]|\{[@*]\})\"?", self.texts[last]):
            last -= 1
        at = self.words[last][1]
        places = Places(self.source.text)
        separator = " "
        if last and places.line_of(self.words[last][0]) != places.line_of(self.words[0][0]):
            line = places.starts[places.line_of(self.words[last][0]) - 1]
            indent = re.match(r"[ \t]*", self.source.text[line:])
            separator = " \\" + places.newline() + (indent.group() if indent else "")
        return Edit(self.source.path, at, at, "".join(separator + flag for flag in written))

    def _flag(self, name: str, value: Any, dialect: str) -> str:
        """A flag in the manner of the others."""
        word = _quoted(value)
        overrides = [text for text in self.texts[1:] if re.match(r"[A-Za-z_][\w.]*=", text)]
        flags = [text for text in self.texts[1:] if text.startswith("--")]
        if dialect not in LAUNCH_WORDS and overrides and len(overrides) >= len(flags):
            return f"{name}={word}"
        if "-" in "".join(flags).replace("--", "") and not any("_" in text.partition("=")[0] for text in flags):
            name = name.replace("_", "-")
        if dialect in SWITCHES and isinstance(value, bool):
            return f"--{name}"
        joined = [text for text in flags if "=" in text]
        return f"--{name}={word}" if len(joined) * 2 > len(flags) else f"--{name} {word}"


def _simple(node: Any) -> Iterator[Simple]:
    """Every simple command below a node, those in substitutions included."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Simple):
            yield node
        if is_dataclass(node) and not isinstance(node, type):
            stack.extend(getattr(node, field.name) for field in fields(node))
        elif isinstance(node, (tuple, list)):
            stack.extend(node)


def _word_edit(source: Source, start: int, end: int, value: Any) -> tuple[Edit, ...] | None:
    """The edit of one word's value, keeping its prefix and quotes; of the old value's type."""
    word = source.text[start:end]
    prefix = _PREFIX.match(word)
    if prefix:
        start += prefix.end()
        word = word[prefix.end() :]
    default = _DEFAULT.fullmatch(word.strip("\"'"))
    if default:
        inner = start + word.index(default.group(1)) + len(default.group(1))
        start, word = inner, default.group(2)
    elif len(word) >= 2 and word[0] in "\"'" and word[-1] == word[0]:
        start, word = start + 1, word[1:-1]
    written = _plain(value)
    if word == written or (value is True and word.startswith("--") and not prefix):
        return ()
    if re.search(r"[$`\\\s\"']", word) or not word or (word.startswith("-") and not prefix):
        return None
    if not _same_type(word, value) or re.search(r"[^\w./+,:-]", written):
        return None
    if isinstance(value, bool) and word.islower():
        written = written.lower()
    return (Edit(source.path, start, start + len(word), written),)


def _same_type(word: str, value: Any) -> bool:
    if isinstance(value, bool):
        return word.lower() in ("true", "false")
    if isinstance(value, (int, float)):
        return re.fullmatch(r"[+-]?[\d.]+(?:e[+-]?\d+)?", word, re.IGNORECASE) is not None
    return isinstance(value, str) and not re.fullmatch(r"[+-]?[\d.]+", word)


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _quoted(value: Any) -> str:
    text = _plain(value)
    return text if re.fullmatch(r"[\w./+,:-]+", text) else "'" + text.replace("'", "'\\''") + "'"


def _proved(source: Source, edits: tuple[Edit, ...]) -> tuple[Edit, ...] | None:
    """The edits, when the script still parses and no line but theirs changed."""
    try:
        parse(apply(source.text, edits).replace("\r\n", "\n"))
    except (ShellError, RecursionError, ValueError):
        return None
    return edits
