"""Words to values: parameters, arithmetic and substitutions expanded, fields split as bash splits them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

from memlint.facts import Status
from memlint.read.shell.arithmetic import NotArithmetic, evaluate
from memlint.read.shell.state import Text, World
from memlint.read.shell.syntax import Arithmetic, Block, Literal, Parameter, Substitution, Word
from memlint.read.shell.value import (
    Array,
    Joined,
    Lines,
    Piece,
    Value,
    bounded,
    computed,
    linked,
    raw_text,
    softened,
    status_of,
    text_of,
    unknown_value,
)

ARGUMENTS = "the arguments of the script are not known"
MAX_FIELDS = 4096
RANDOM = frozenset({"RANDOM", "SECONDS", "EPOCHSECONDS", "PPID", "UID", "LINENO", "HOSTNAME"})
BRACES = re.compile(r"^(.*?)\{([^{}\s]*(?:,|\.\.)[^{}\s]*)\}(.*)$", re.DOTALL)

Substitute = Callable[[Block, World, Text], Value]


class Expander:
    """Expands words in a world. `substitute` computes `$(...)`; `path` is what `$0` says."""

    def __init__(self, path: str, substitute: Substitute) -> None:
        self.path, self._substitute = path, substitute

    def value(self, word: Word, world: World, text: Text) -> Value:
        """The word as one string, as in an assignment: not split."""
        pieces: list[Piece] = []
        for part in word.parts:
            expanded = self._part(part, world, text)
            if isinstance(expanded, list):
                for index, element in enumerate(expanded):
                    pieces.extend((Piece(" "), *element) if index else element)
            else:
                pieces.extend(expanded)
        return bounded(pieces)

    def fields(self, word: Word, world: World, text: Text) -> Array:
        """The word as the strings that a command receives."""
        if len(word.parts) == 1 and isinstance(word.parts[0], Literal) and not word.parts[0].quoted:
            literal = word.parts[0]
            braced = _braces(text.text[literal.start : literal.end])
            if len(braced) > 1:
                return [computed(item, text.pieces(literal.start, literal.end)) for item in braced]
        fields: Array = []
        current: list[Piece] | None = None
        for part in word.parts:
            expanded = self._part(part, world, text)
            quoted = isinstance(part, Literal) or part.quoted
            elements = expanded if isinstance(expanded, list) else [expanded]
            if not elements and current == []:
                current = None  # `"$@"` without arguments is no word, not an empty one
            for index, element in enumerate(elements):
                if index and current is not None:
                    fields.append(tuple(current))
                    current = None
                if quoted:
                    current = [*(current or ()), *element]
                    continue
                for position, piece_run in enumerate(_split(element)):
                    if position and current is not None:
                        fields.append(tuple(current))
                        current = None
                    if piece_run:
                        current = [*(current or ()), *piece_run]
        if current is not None:
            fields.append(tuple(current))
        return [bounded(list(field)) for field in fields[:MAX_FIELDS]]

    def _part(self, part: Literal | Parameter | Arithmetic | Substitution, world: World, text: Text) -> Value | Array:
        if isinstance(part, Literal):
            if part.start == part.end:
                return ()
            pieces = text.pieces(part.start, part.end)
            return tuple(replace(p, quoted=True) for p in pieces) if part.quoted else pieces
        if isinstance(part, Parameter):
            return self._parameter(part, world, text)
        if isinstance(part, Arithmetic):
            return self.arithmetic(part.expression, world, text, part.start, part.end)
        found = self._substitute(part.body, world, text)
        if status_of(found) is Status.UNKNOWN:
            return found
        return computed(raw_text(found), found) if len(found) != 1 else found

    # Arithmetic ------------------------------------------------------------------------------------------------------

    def arithmetic(self, expression: Word, world: World, text: Text, start: int, end: int) -> Value:
        """The value of an arithmetic expression as text."""
        written = self.value(expression, world, text)
        used: list[Value] = [written]
        raw = text.text[start:end]
        if status_of(written) is Status.UNKNOWN:
            return _unknown_like(written, raw, text, start)

        def lookup(name: str) -> int:
            value = self.lookup(name, "", world)
            found = value if isinstance(value, tuple) else None
            if found is None or status_of(found) is Status.UNKNOWN:
                unknowns.append(found or _unset(name, name, text, start))
                raise NotArithmetic(name)
            used.append(found)
            try:
                return int(raw_text(found).strip() or "0")
            except ValueError:
                raise NotArithmetic(name) from None

        unknowns: list[Value] = []
        try:
            result = evaluate(raw_text(written), lookup)
        except (NotArithmetic, RecursionError):
            if unknowns:
                return _unknown_like(unknowns[0], raw, text, start)
            return unknown_value(f"not an expression that memlint computes: {raw}", raw, *_place(text, start))
        place = text.pieces(start, end)
        return computed(str(result), *used[1:], tuple(p for p in written if p.chain), place)

    # Parameters ------------------------------------------------------------------------------------------------------

    def lookup(self, name: str, index: str, world: World) -> Value | Array | None:
        """What a variable holds; None when nothing sets it."""
        if name in ("@", "*"):
            if world.arguments is not None:
                return list(world.arguments)
            return [(Piece('"$@"', status=Status.UNKNOWN, reason=ARGUMENTS, external=True),)]
        if name.isdigit():
            number = int(name)
            if number == 0:
                return (Piece(self.path),)
            if world.arguments is None:
                return None
            return world.arguments[number - 1] if number <= len(world.arguments) else ()
        if name == "#":
            if world.arguments is None:
                return (Piece("0", status=Status.DEFAULT),)
            return (Piece(str(len(world.arguments))),)
        if name == "?":
            return (Piece("0", status=Status.DEFAULT),)
        if name == "BASH_SOURCE":
            return (Piece(self.path),)
        if name == "PWD":
            return (Piece(world.directory or "."),)
        if name in world.keyed:
            entries = world.keyed[name]
            if index in ("@", "*"):
                return list(entries.values())
            key = index if "$" not in index else self.index(index, world)
            return entries.get(key) if key is not None else _unresolved(name, index)
        held = world.variables.get(name)
        if held is None and name == "HOME":
            return (Piece("~"),)  # a path below it is written so just as well
        if isinstance(held, list):
            if index in ("@", "*"):
                return held
            place = self.index(index, world) if index else "0"
            if place is None or not re.fullmatch(r"-?\d+", place):
                return _unresolved(name, index)
            number = int(place)
            return held[number] if -len(held) <= number < len(held) else ()
        return held

    def index(self, index: str, world: World) -> str | None:
        """An array's index as written (`2`, `a`, `$i`, `i+1`) with its variables put in; None when one is not known."""
        if re.fullmatch(r"[\w.-]+", index) and index not in world.variables:
            return index

        def number(name: str) -> int:
            value = self.lookup(name, "", world)
            known = text_of(value) if isinstance(value, tuple) else None
            if known is None or not re.fullmatch(r"\s*-?\d+\s*", known):
                raise NotArithmetic(name)
            return int(known)

        found = text_of(value) if isinstance(value := self.lookup(index.strip("${}"), "", world), tuple) else None
        if found is not None and "$" in index:
            return found
        try:
            return str(evaluate(index, number))
        except (NotArithmetic, RecursionError):
            return None

    def _parameter(self, part: Parameter, world: World, text: Text) -> Value | Array:
        raw = text.text[part.start : part.end]
        if part.name in RANDOM or part.name in ("$", "!", "-"):
            return unknown_value(f"${part.name} is only known when the script runs", raw, *_place(text, part.start))
        held = self.lookup(part.name, part.index, world)
        if part.indirect and isinstance(held, tuple):
            target = text_of(held)
            held = self.lookup(target, "", world) if target else None
        if isinstance(held, list) and part.operator == "length":
            return (
                computed(str(len(held)), *held)
                if world.arguments is not None or part.name not in "@*"
                else (Piece("0", status=Status.DEFAULT),)
            )
        if isinstance(held, list):
            if part.operator.lstrip(":") in ("-", "=", "+", "?") and held and part.operand is not None:
                return self.value(part.operand, world, text) if "+" in part.operator and not part.quoted else held
            return [_used(element, part, text) for element in held]
        if part.operator.lstrip(":") in ("-", "=", "?", "+") and part.operator not in ("", ":"):
            return self._with_default(part, held, world, text)
        if held is None:
            return _unset(part.name, raw, text, part.start)
        if not part.operator:
            return _used(held, part, text)
        return self._transformed(part, held, world, text)

    def _with_default(self, part: Parameter, held: Value | None, world: World, text: Text) -> Value:
        assert part.operand is not None
        kind = part.operator[-1]
        absent = held is None or (bool(held) and all(p.external for p in held))
        empty = held is not None and not absent and part.operator[0] == ":" and text_of(held) == ""
        raw = text.text[part.start : part.end]
        if kind == "+":
            return () if absent or empty else self.value(part.operand, world, text)
        if kind == "?":
            return _unset(part.name, raw, text, part.start) if held is None else _used(held, part, text)
        if absent or empty:
            value = self.value(part.operand, world, text)
            value = softened(value) if absent else value
            if kind == "=":
                world.assign(part.name, value)
            return value
        assert held is not None
        return _used(held, part, text)

    def _transformed(self, part: Parameter, held: Value, world: World, text: Text) -> Value:
        known = text_of(held)
        operand = text_of(self.value(part.operand, world, text)) if part.operand is not None else ""
        raw = text.text[part.start : part.end]
        if known is None or operand is None:
            return _unknown_like(held, raw, text, part.start)
        result = _transform(part.operator, known, operand)
        if result is None:
            return unknown_value(f"memlint does not compute {raw}", raw, *_place(text, part.start))
        return computed(result, held, text.pieces(part.start, part.end))


def _transform(operator: str, value: str, operand: str) -> str | None:
    """`${value<operator>operand}` for known texts."""
    if operator == "length":
        return str(len(value))
    if operator in ("%", "%%", "#", "##"):
        sizes = range(len(value) + 1)
        if len(value) > 4096:
            return None
        order = sizes if len(operator) == 1 else reversed(sizes)
        for size in order:
            piece = value[len(value) - size :] if operator[0] == "%" else value[:size]
            if fnmatchcase(piece, operand):
                return value[: len(value) - size] if operator[0] == "%" else value[size:]
        return value
    if operator in ("/", "//"):
        old, _, new = operand.partition("/")
        if not old or any(c in old for c in "*?["):
            return None
        return value.replace(old, new, 1 if operator == "/" else -1)
    if operator in ("^^", ",,") and not operand:
        return value.upper() if operator == "^^" else value.lower()
    if operator == ":":
        match = re.fullmatch(r"\s*(-?\d+)\s*(?::\s*(\d+))?\s*", operand)
        if match is None:
            return None
        start = int(match.group(1))
        rest = value[start:]
        return rest[: int(match.group(2))] if match.group(2) else rest
    return None


def _used(value: Value, part: Parameter, text: Text) -> Value:
    span = text.span(part.start, part.end)
    return linked(value, span, f"${part.name}") if span is not None else value


def _unresolved(name: str, index: str) -> Value:
    return unknown_value(f"the index {index} of ${name} is not known", f"${{{name}[{index}]}}", None, -1)


def _unset(name: str, raw: str, text: Text, start: int) -> Value:
    if name.isdigit():
        reason = f"argument {name} of the script is not known"
    else:
        reason = f"${name} is not set in the file"
    return unknown_value(reason, raw, *_place(text, start), external=True)


def _unknown_like(value: Value, raw: str, text: Text, start: int) -> Value:
    """An unknown for the reason of the first unknown piece of `value`."""
    reason = next((p.reason for p in value if p.status is Status.UNKNOWN), "not known")
    return unknown_value(reason, raw, *_place(text, start))


def _place(text: Text, start: int) -> tuple[Lines | None, int]:
    return (None, -1) if isinstance(text, Joined) else (text, start)


def _split(value: Value) -> list[list[Piece]]:
    """A value cut at blanks: the runs between them, an empty first or last run where it starts or ends with a blank."""
    runs: list[list[Piece]] = [[]]
    for piece in value:
        if piece.status is Status.UNKNOWN:
            runs[-1].append(piece)
            continue
        start = 0
        for match in re.finditer(r"[ \t\n]+", piece.text):
            if match.start() > start:
                runs[-1].append(piece.cut(start, match.start()))
            runs.append([])
            start = match.end()
        if start < len(piece.text):
            runs[-1].append(piece.cut(start, len(piece.text)))
    return runs


def _braces(text: str, depth: int = 0) -> list[str]:
    """`{a,b}` and `{1..3}` expanded, at most 64 words."""
    match = BRACES.match(text)
    if match is None or depth > 4 or "$" in text:
        return [text]
    before, inner, after = match.groups()
    numbers = re.fullmatch(r"(-?\d+)\.\.(-?\d+)(?:\.\.(\d+))?", inner)
    if numbers:
        first, last, step = int(numbers[1]), int(numbers[2]), int(numbers[3] or 1) or 1
        if abs(last - first) // step >= 64:
            return [text]
        items = [str(n) for n in range(first, last + (1 if last >= first else -1), step if last >= first else -step)]
    elif "," in inner:
        items = inner.split(",")
    else:
        return [text]
    return [found for item in items for found in _braces(before + item + after, depth + 1)][:64]
