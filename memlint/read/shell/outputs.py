"""What the small commands inside `$(...)` print: enough of echo, expr, seq, dirname, tr, wc, cut and awk for launches."""

from __future__ import annotations

import posixpath
import re

from memlint.facts import Status
from memlint.read.shell.arithmetic import NotArithmetic, evaluate
from memlint.read.shell.value import MAX_TEXT, Array, Piece, Value, computed, raw_text, status_of, text_of

FIELD_COUNT = re.compile(r"\s*\{\s*print\s+NF\s*;?\s*\}\s*")
FIELD = re.compile(r"\s*\{\s*print\s+\$(\d+)\s*;?\s*\}\s*")


FILTERS = frozenset({"grep", "awk", "cut", "head", "tail", "tr", "wc"})
"""Commands that read standard input or the file named last."""
PLAIN_PATTERN = re.compile(r"[\w ,/=:\"'^$-]+")
"""Patterns that basic and extended regular expressions, and Python's, take alike."""


def output(words: Array, given: Value | None, directory: str | None) -> Value | None:
    """What the command `words` prints when it reads `given` on standard input; None when that is not known."""
    texts = [text_of(word) for word in words]
    name = texts[0] if texts else None
    if name is None:
        return None
    if name == "echo":
        return _echo(words[1:])
    if name == "printf" and len(words) == 2:
        return words[1]
    if name == "printf" and len(words) == 3 and texts[1] in ("%s", "%s\n", "%s\\n"):
        return words[2]
    if name == "cat" and len(words) == 1:
        return given
    if name == "pwd":
        return (Piece(directory or "."),)
    if any(text is None for text in texts) or (given is not None and status_of(given) is Status.UNKNOWN):
        return _first_unknown([*words, *([given] if given else [])])
    known = [text or "" for text in texts]
    if name == "expr":
        return _expr(words[1:], known[1:])
    result = _filter(known, None if given is None else raw_text(given))
    return None if result is None else computed(result, *words[1:], *([given] if given else []))


def _echo(words: Array) -> Value:
    while words and text_of(words[0]) in ("-n", "-e", "-ne", "-en"):
        words = words[1:]
    pieces: list[Piece] = []
    for index, word in enumerate(words):
        pieces.extend((Piece(" "), *word) if index else word)
    return tuple(pieces)


def _first_unknown(values: Array) -> Value | None:
    for value in values:
        for piece in value:
            if piece.status is Status.UNKNOWN:
                return (piece,)
    return None


def _expr(words: Array, texts: list[str]) -> Value | None:
    def lookup(name: str) -> int:
        raise NotArithmetic(name)

    try:
        return computed(str(evaluate(" ".join(texts), lookup)), *words)
    except (NotArithmetic, RecursionError):
        return None


def _filter(words: list[str], given: str | None) -> str | None:
    """Commands from text to text."""
    name, arguments = words[0], words[1:]
    if name == "seq" and 1 <= len(arguments) <= 3:
        return _seq(arguments)
    if name == "dirname" and len(arguments) == 1:
        return posixpath.dirname(arguments[0]) or "."
    if name == "basename" and arguments:
        base = posixpath.basename(arguments[0].rstrip("/"))
        suffix = arguments[1] if len(arguments) > 1 else ""
        return base.removesuffix(suffix) if base != suffix else base
    if name in ("realpath", "readlink") and arguments and not arguments[-1].startswith("-"):
        return posixpath.normpath(arguments[-1])
    if name == "git" and arguments == ["rev-parse", "--show-toplevel"]:
        return "."
    if given is None:
        return None
    if name == "bc":
        return _bc(given)
    if name == "wc" and arguments in (["-l"], ["-w"]):
        return str(len(given.split()) if arguments == ["-w"] else len(given.rstrip("\n").split("\n")))
    if name == "tr" and len(arguments) == 2:
        return _tr(given, *arguments)
    if name == "xargs" and not arguments:
        return " ".join(given.split())
    if name == "awk" and arguments:
        return _awk(given, arguments)
    if name == "grep":
        return _grep(given, arguments)
    if name == "cut":
        return _cut(given, arguments)
    if name in ("head", "tail") and arguments in (["-n", "1"], ["-n1"], ["-1"]):
        return given.rstrip("\n").split("\n")[0 if name == "head" else -1]
    return None


def _seq(arguments: list[str]) -> str | None:
    try:
        numbers = [int(argument) for argument in arguments]
    except ValueError:
        return None
    first, step, last = {1: (1, 1, numbers[-1]), 2: (numbers[0], 1, numbers[-1])}.get(
        len(numbers), (numbers[0], numbers[len(numbers) // 2], numbers[-1])
    )
    if step == 0 or abs(last - first) // abs(step) >= 1000:
        return None
    return "\n".join(str(n) for n in range(first, last + (1 if step > 0 else -1), step))


def _bc(given: str) -> str | None:
    def lookup(name: str) -> int:
        raise NotArithmetic(name)

    try:
        return str(evaluate(given.split(";")[-1], lookup))
    except (NotArithmetic, RecursionError):
        return None


def _tr(given: str, old: str, new: str) -> str | None:
    if old == "-d":
        return given.replace(new, "") if len(new) == 1 else None
    old, new = old.replace("\\n", "\n"), new.replace("\\n", "\n")
    return given.replace(old, new) if len(old) == len(new) == 1 else None


def _grep(given: str, arguments: list[str]) -> str | None:
    flags = [argument for argument in arguments if re.fullmatch(r"-[Eiwm\d]+", argument)]
    rest = [argument for argument in arguments if argument not in flags]
    if len(rest) != 1 or not PLAIN_PATTERN.fullmatch(rest[0]) or len(given) > MAX_TEXT:
        return None
    options = "".join(flag[1:] for flag in flags)
    pattern = rf"\b(?:{rest[0]})\b" if "w" in options else rest[0]
    found = [row for row in given.split("\n") if re.search(pattern, row, re.IGNORECASE if "i" in options else 0)]
    most = re.search(r"m(\d+)", options)
    return "\n".join(found[: int(most.group(1))] if most else found)


def _separator(arguments: list[str], flag: str) -> tuple[str | None, list[str]]:
    """The separator given as `-F,`, `-F ','`, `-d','`, and the other arguments."""
    if arguments[0] == flag and len(arguments) > 1:
        return arguments[1], arguments[2:]
    if arguments[0].startswith(flag) and len(arguments[0]) > len(flag):
        return arguments[0][len(flag) :], arguments[1:]
    return None, arguments


def _awk(given: str, arguments: list[str]) -> str | None:
    separator, rest = _separator(arguments, "-F")
    if len(rest) != 1 or "\n" in given.rstrip("\n"):
        return None
    fields = given.rstrip("\n").split(separator)
    if FIELD_COUNT.fullmatch(rest[0]):
        return str(len(fields))
    match = FIELD.fullmatch(rest[0])
    if match is None:
        return None
    number = int(match.group(1))
    return given if number == 0 else fields[number - 1] if number <= len(fields) else ""


def _cut(given: str, arguments: list[str]) -> str | None:
    if not arguments:
        return None
    separator, rest = _separator(arguments, "-d")
    match = re.fullmatch(r"-f\s*(\d+)", " ".join(rest))
    if separator is None or match is None or "\n" in given.rstrip("\n"):
        return None
    fields = given.rstrip("\n").split(separator)
    number = int(match.group(1))
    return fields[number - 1] if 1 <= number <= len(fields) else ""
