"""Shell builtins that change the state of the walk."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from memlint.facts import Status
from memlint.read.shell.arithmetic import NotArithmetic, evaluate
from memlint.read.shell.expand import Expander
from memlint.read.shell.state import Text, World
from memlint.read.shell.syntax import Assignment
from memlint.read.shell.value import Array, Piece, Value, computed, raw_text, status_of, text_of, unknown_value
from memlint.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.read.shell.evaluate import Walk

DECLARE = frozenset({"export", "local", "declare", "typeset", "readonly"})
PRINTERS = frozenset({"echo", "printf", "print", "cat", "log", "info", "grep", "sed", "awk"})
"""Commands whose arguments are only text."""
STEP = re.compile(r"\s*([A-Za-z_]\w*)\s*(\+\+|--|[-+*/%]?=(?!=))\s*(.*)", re.DOTALL)

Builtin = Callable[["Walk", Array, "Value | None", World, Text], "list[World]"]


def declare(walk: Walk, name: str, words: Array, assignments: list[Assignment], world: World, text: Text) -> list[World]:
    """`export`, `local`, `declare`, `readonly`."""
    options = [raw_text(word) for word in words if raw_text(word).startswith("-")]
    names = [raw_text(word).partition("=")[0] for word in words if not raw_text(word).startswith("-")]
    local = name == "local" or (name in ("declare", "typeset") and "-g" not in options)
    if local and world.locals:
        for target in (*names, *(a.name for a in assignments)):
            world.locals[-1].setdefault(target, world.variables.get(target))
    if any("A" in option for option in options):
        for target in (*names, *(a.name for a in assignments)):
            world.keyed.setdefault(target, {})
    for assignment in assignments:
        walk.assign(assignment, world, text)
    for word in words:
        # `export $NAME=value` and `export "A=b"` come as words, not as assignments.
        target, equals, _ = raw_text(word).partition("=")
        if equals and target.isidentifier():
            world.assign(target, after(word, len(target) + 1))
    if name == "export" or any("x" in option for option in options):
        world.exported.update(names, (a.name for a in assignments))
    return [world]


def after(value: Value, count: int) -> Value:
    """The value without its first `count` characters."""
    pieces: list[Piece] = []
    for piece in value:
        if count >= len(piece.text):
            count -= len(piece.text)
            continue
        pieces.append(piece.cut(count, len(piece.text)) if count else piece)
        count = 0
    return tuple(pieces)


def let(expression: Value, world: World, expander: Expander, text: Text) -> bool:
    """`i++`, `i+=2`, `i=j*2` as a statement; True when the expression is one."""
    match = STEP.fullmatch(raw_text(expression))
    if match is None:
        return False
    name, operator, right = match.groups()
    world.assign(name, unknown_value(f"${name} is counted", f"${name}", None, -1))
    if operator == "=":
        with suppress(NotArithmetic, RecursionError):
            world.assign(name, computed(str(evaluate(right, _refuse)), expression))
    return True


def _refuse(name: str) -> int:
    raise NotArithmetic(name)


def _let(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
    for word in words:
        let(word, world, walk.expander, text)
    return [world]


def _ends(how: str) -> Builtin:
    def end(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
        world.ended = how
        return [world]

    return end


def _eval(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
    pieces: list[Piece] = []
    for index, word in enumerate(words):
        pieces.extend((Piece(" "), *word) if index else word)
    return walk.walk_eval(tuple(pieces), world)


def _source(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
    link = text_of(words[0]) if words else None
    return walk.walk_source(link, world) if link else [world]


def _cd(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
    targets = [word for word in words if not raw_text(word).startswith("-")]
    target = text_of(targets[0]) if targets else None
    if target is not None and not target.startswith("~"):
        world.directory = posixpath.normpath(posixpath.join(world.directory or "", target))
    return [world]


def _set(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
    texts = [raw_text(word) for word in words]
    for previous, option in pairwise(["", *texts]):
        if option == "--":
            break
        if option == "allexport" or (option[:1] in "+-" and "a" in option[1:]):
            world.exporting = (previous if option == "allexport" else option).startswith("-")
    if "--" in texts:
        rest = words[texts.index("--") + 1 :]
        world.arguments = None if any(status_of(word) is Status.UNKNOWN for word in rest) else rest
    return [world]


def _shift(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
    count = text_of(words[0]) if words else "1"
    if world.arguments is not None and count is not None and count.isdigit():
        world.arguments = world.arguments[int(count) :]
    return [world]


def _unset(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
    for word in words:
        name = raw_text(word)
        world.variables.pop(name, None)
        world.exported.discard(name)
    return [world]


def _read(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
    """`read NAME`, with the text of a here-document or here-string when there is one."""
    names: list[str] = []
    array = False
    skip = False
    for word in map(raw_text, words):
        if skip:
            skip = False
        elif word.startswith("-"):
            array = array or "a" in word
            skip = word[-1:] in "dpntuN" and len(word) == 2
        elif word.isidentifier():
            names.append(word)
    line = text_of(given) if given is not None else None
    fields = line.split(maxsplit=len(names) - 1) if line and len(names) > 1 else []
    for position, name in enumerate(names or ["REPLY"]):
        if given is not None and len(names) == 1 and not array:
            world.assign(name, given)
        elif given is not None and fields and not array:
            world.assign(name, computed(fields[position] if position < len(fields) else "", given))
        else:
            world.assign(name, unknown_value(f"${name} is read when the script runs", f"${name}", None, -1))
    return [world]


def _printf(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
    """`printf -v NAME FORMAT VALUE` sets a variable."""
    texts = [text_of(word) for word in words]
    if len(words) == 4 and texts[0] == "-v" and texts[1] and texts[2] in ("%s", "%d"):
        world.assign(texts[1], words[3])
    return [world]


def _nothing(walk: Walk, words: Array, given: Value | None, world: World, text: Text) -> list[World]:
    return [world]


TABLE: dict[str, Builtin] = {
    "exit": _ends("exit"),
    "return": _ends("return"),
    "break": _ends("break"),
    "continue": _ends("continue"),
    "eval": _eval,
    "source": _source,
    ".": _source,
    "cd": _cd,
    "pushd": _cd,
    "set": _set,
    "shift": _shift,
    "unset": _unset,
    "read": _read,
    "let": _let,
    "printf": _printf,
    **dict.fromkeys((":", "[", "test", "true", "false", "trap", "wait", "shopt", "ulimit", "umask", "popd"), _nothing),
}
