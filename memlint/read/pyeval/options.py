"""Options of a command line and the words that set them, independent of the library that declares them."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Container, Iterable

from memlint.facts import Fact, Origin, Status, choices, fixed
from memlint.read.pyeval.joins import Unknowable, combine, constant, linked, opaque, weaken
from memlint.read.pyeval.values import Array, Symbol, Table
from memlint.source import Span
from memlint.typed import Any

NOWHERE = Span("", 1)
"""The place of a value that stands nowhere."""


class Option:
    """One option or positional argument."""

    def __init__(
        self,
        dest: str,
        flags: tuple[str, ...],
        span: Span,
        default: Fact | None = None,
        required: bool = False,
        convert: Callable[[Fact], Fact] | None = None,
        choices: tuple[Any, ...] = (),
        action: str = "store",
        nargs: int | str | None = None,
        const: Fact | None = None,
        off_flags: tuple[str, ...] = (),
    ) -> None:
        self.dest = dest
        self.flags = flags
        """How it is written (`--bs`, `-b`); empty for a positional."""
        self.span = span
        self.default = default
        self.required = required
        self.convert = convert
        """From a word to a value; None keeps the text."""
        self.choices = choices
        self.action = action
        """store, true, false, const, count, append, boolean (`--x/--no-x`) or switch (`--x` alone or `--x false`)."""
        self.nargs = nargs
        self.const = const
        self.off_flags = off_flags
        """Flags that switch a boolean off."""


class Words:
    """The result of reading a command line."""

    def __init__(
        self, values: dict[str, Fact] | None = None, extras: dict[str, list[Fact]] | None = None, rest: list[Fact] | None = None
    ) -> None:
        self.values: dict[str, Fact] = {} if values is None else values
        self.extras: dict[str, list[Fact]] = {} if extras is None else extras
        """Flags that no option declares, with the words that follow them."""
        self.rest: list[Fact] = [] if rest is None else rest
        """Words that no positional takes."""
        self.open: str = ""
        """Why further words may have been given; empty when all are known."""


def is_flag(word: Fact) -> bool:
    """Whether a word starts an option (a negative number does not)."""
    text = word.value
    if not word.known or not isinstance(text, str) or len(text) < 2 or text[0] != "-":
        return False
    return not text[1:2].isdigit() and text[1:2] != "."


def read_words(options: Iterable[Option], words: Iterable[Fact], *, prefixes: bool = True) -> Words:
    """Read words as argparse, click and their relatives do."""
    options = list(options)
    flags = {flag: option for option in options for flag in option.flags}
    offs = {flag: option for option in options for flag in option.off_flags}
    positionals = [option for option in options if not option.flags]
    result = Words()
    queue = list(words)
    index = 0
    while index < len(queue):
        word = queue[index]
        index += 1
        if not is_flag(word):
            if positionals:
                option = positionals[0]
                many = option.nargs in ("*", "+") or isinstance(option.nargs, int)
                taken = [word]
                while many and index < len(queue) and not is_flag(queue[index]) and len(taken) != option.nargs:
                    taken.append(queue[index])
                    index += 1
                positionals.pop(0)
                result.values[option.dest] = _value(option, taken)
            else:
                result.rest.append(word)
            continue
        name, sep, inline = word.value.partition("=")
        if name in offs:
            result.values[offs[name].dest] = Fact(False, word.status, word.origin)
            continue
        found = _match(name, flags, prefixes)
        if found is None and not name.startswith("--") and len(name) > 2 and name[:2] in flags:
            found = flags[name[:2]]
            if found.action in _WORDLESS:  # `-vvx`: several flags in one word
                queue.insert(index, _same_place(word, f"-{word.value[2:]}"))
            else:
                inline, sep = word.value[2:], "="
        following = index
        while following < len(queue) and not is_flag(queue[following]):
            following += 1
        if found is None:
            given = [_same_place(word, inline)] if sep else queue[index:following]
            result.extras.setdefault(name, []).extend(given or [Fact(True, word.status, word.origin)])
            index = index if sep else following
            continue
        given, used = _taken(found, _same_place(word, inline) if sep else None, queue[index:following], word)
        index += used
        value = _value(found, given)
        if found.action == "count":
            before = result.values[found.dest].value if found.dest in result.values else 0
            value = value.with_value(before + 1 if isinstance(before, int) else 1)
        if found.action == "append" and found.dest in result.values:
            old = result.values[found.dest].value
            value = fixed(Array((*old.items, *value.value.items))) if isinstance(old, Array) else value
        result.values[found.dest] = value
    return result


def split_at(words: list[Fact], options: Iterable[Option], names: Container[str]) -> tuple[list[Fact], str, list[Fact]]:
    """The words before a sub-command, its name, and the words after it; a name that is the value of an option is none."""
    takers = {flag for option in options if option.action in {"store", "append"} for flag in option.flags}
    for index, word in enumerate(words):
        value_of_flag = index > 0 and is_flag(words[index - 1]) and words[index - 1].value in takers
        if word.known and isinstance(word.value, str) and word.value in names and not value_of_flag:
            return words[:index], word.value, words[index + 1 :]
    return words, "", []


def _same_place(word: Fact, text: str) -> Fact:
    return Fact(text, word.status, word.origin)


def abbreviated(name: str, names: Iterable[str]) -> str:
    """The one name that an abbreviation stands for, as argparse completes it; the name itself when there is not one."""
    names = set(names)
    found = [full for full in names if full.startswith(name)]
    return found[0] if name not in names and len(found) == 1 else name


def _match(name: str, flags: dict[str, Option], prefixes: bool) -> Option | None:
    if name in flags:
        return flags[name]
    if prefixes and name.startswith("--"):
        found = {id(option): option for flag, option in flags.items() if flag.startswith(name)}
        if len(found) == 1:
            return next(iter(found.values()))
    return None


def _taken(option: Option, inline: Fact | None, following: list[Fact], flag: Fact) -> tuple[list[Fact], int]:
    """The words of an option, and how many of the following ones they are."""
    if option.action in _WORDLESS and inline is None:
        value = {"true": True, "boolean": True, "false": False}.get(option.action, True)
        return [Fact(value, flag.status, flag.origin) if option.action != "const" or option.const is None else option.const], 0
    if inline is not None:
        return [inline], 0
    if option.action == "switch":
        if following and following[0].value in _SWITCHES:
            return following[:1], 1
        return [Fact(True, flag.status, flag.origin)], 0
    if option.nargs in ("*", "+"):
        return following, len(following)
    if option.nargs == "?":
        if following:
            return following[:1], 1
        return [option.const or fixed(None)], 0
    count = option.nargs if isinstance(option.nargs, int) else 1
    if not following:
        return [opaque(f"`{flag.value}` has no value", "option", (), option.span)], 0
    return following[:count], min(count, len(following))


_WORDLESS = frozenset({"true", "false", "const", "boolean", "count"})
"""Actions that take no word."""
_SWITCHES = frozenset({"true", "false", "True", "False", "1", "0", "yes", "no", "on", "off", "y", "n", "t", "f"})


def _value(option: Option, words: list[Fact]) -> Fact:
    converted = [_convert(option, word) for word in words]
    many = option.nargs in ("*", "+") or isinstance(option.nargs, int) or option.action == "append"
    fact = fixed(Array(converted)) if many else converted[0]
    if many and words and words[0].origin:
        fact = Fact(fact.value, Status.FIXED, words[0].origin)
    return linked(fact, option.span, f"option {(option.flags or (option.dest,))[0]}")


def _convert(option: Option, word: Fact) -> Fact:
    if option.convert is None or (word.known and not isinstance(word.value, str)) or word.status is Status.UNKNOWN:
        return word
    made = option.convert(word)
    return Fact(made.value, made.status, word.origin or made.origin, made.choices, made.reason, made.decided_by)


def unset(option: Option, launched: bool) -> Fact:
    """The value of an option that the command line does not give."""
    label = (option.flags or (option.dest,))[0]
    if option.default is not None:
        default = option.default
        if option.convert is not None and default.known and isinstance(default.value, str):
            made = option.convert(default)
            default = Fact(made.value, made.status, default.origin, made.choices, made.reason, made.decided_by)
        return linked(weaken(default), option.span, f"default of {label}")
    if option.action == "true":
        return Fact(False, Status.DEFAULT, (Origin(option.span, f"default of {label}"),))
    if option.action == "false":
        return Fact(True, Status.DEFAULT, (Origin(option.span, f"default of {label}"),))
    if not option.flags and option.nargs == "*":
        return Fact(Array(()), Status.DEFAULT, (Origin(option.span, f"default of {label}"),))
    if option.required or (not option.flags and option.nargs != "?"):
        if option.choices:
            return choices(option.choices, option.span, f"the choices of {label}")
        where = "the launch does not give it" if launched else "no launch is known"
        return opaque(f"{label} has no default and {where}", "option", (), option.span)
    return Fact(None, Status.DEFAULT, (Origin(option.span, f"default of {label}"),))


def _suppressed(option: Option) -> bool:
    """`argparse.SUPPRESS`: an option that is not given leaves no attribute."""
    default = option.default.value if option.default is not None else None
    return isinstance(default, Symbol) and default.name == "argparse.SUPPRESS"


def settle(options: Iterable[Option], words: Words, launched: bool) -> dict[str, Fact]:
    """The value of every option: given, or its default."""

    def value(option: Option) -> Fact:
        if option.dest in words.values:
            return words.values[option.dest]
        return opaque(words.open, "option", (), option.span) if words.open else unset(option, launched)

    settled: dict[str, Fact] = {}
    for option in options:
        again = option.dest in settled and option.default is None  # the default of the first that sets it stands
        if option.dest in words.values or not (_suppressed(option) or again):
            settled[option.dest] = value(option)
    return settled


# --- conversions ----------------------------------------------------------------------------------------------------


def plain_value(text: Any) -> Any:
    """A word as a value when no type is declared for it: a number, a boolean, JSON, a Python literal, or the text."""
    if not isinstance(text, str):
        return text
    lowered = text.strip().lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    if lowered in {"none", "null"}:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    if text[:1] in ("{", "[", "("):
        for read in (json.loads, ast.literal_eval):
            try:
                return read(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                pass
    return text


def guessed(fact: Fact) -> Fact:
    """A word with the type that it looks like; JSON becomes dicts and lists."""

    def one(text: Any) -> Any:
        return structured(plain_value(text), fact)

    if fact.status is Status.UNKNOWN:
        return fact
    made = combine(one, (fact,), fact.origin[0].span if fact.origin and fact.origin[0].span else NOWHERE, "value")
    return Fact(made.value, made.status, fact.origin, made.choices, made.reason, made.decided_by)


def structured(value: Any, place: Fact) -> Any:
    """Plain data as abstract values, all at one place."""
    if isinstance(value, dict):
        return Table({k: Fact(structured(v, place), place.status, place.origin) for k, v in value.items() if constant(k)})
    if isinstance(value, (list, tuple)):
        return Array([Fact(structured(v, place), place.status, place.origin) for v in value])
    return value


def comma_separated(fact: Fact) -> Fact:
    """absl's lists: `a,b`."""
    parts = [part.strip() for part in fact.value.split(",")] if fact.known and isinstance(fact.value, str) else None
    return fact if parts is None else fact.with_value(structured(parts, fact))


def boolean(text: Any) -> bool:
    """`transformers.hf_argparser.string_to_bool`, which the other parsers' booleans are subsets of."""
    if isinstance(text, bool):
        return text
    lowered = str(text).lower()
    if lowered in {"yes", "true", "t", "y", "1", "on"}:
        return True
    if lowered in {"no", "false", "f", "n", "0", "off"}:
        return False
    raise Unknowable(f"{text!r} is not a boolean")


def converter(kind: Callable[[Any], Any]) -> Callable[[Fact], Fact]:
    """A conversion of words by a plain function."""

    def convert(fact: Fact) -> Fact:
        def one(text: Any) -> Any:
            try:
                return kind(text)
            except (TypeError, ValueError, OverflowError) as error:
                raise Unknowable(f"the conversion fails: {error}") from None

        span = fact.origin[0].span if fact.origin and fact.origin[0].span else NOWHERE
        return combine(one, (fact,), span, "conversion")

    return convert


TO_INT, TO_FLOAT, TO_BOOL = converter(int), converter(float), converter(boolean)
