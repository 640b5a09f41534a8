"""A command line, read by what a command declares: enough of `argparse`'s ways for memlint, without its price.

Declarations are written as for `argparse`, which takes as long to load and set up as a script takes to read; it draws `--help`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

from memlint.cli.failure import Failure
from memlint.typed import Any, NamedTuple


class BadValue(ValueError):
    """A value that an option does not take; the message says why."""


class Argument(NamedTuple):
    """One option, or one place in the line. `action` is store, store_true or append; `nargs` of a place is "", ?, * or +."""

    name: str
    action: str = "store"
    nargs: str = ""
    default: Any = None
    type: Callable[[str], Any] = str
    choices: Sequence[str] = ()
    metavar: str = ""
    help: str = ""
    group: str = ""

    @property
    def is_option(self) -> bool:
        """True for `--name`, false for a place in the line."""
        return self.name.startswith("--")

    @property
    def dest(self) -> str:
        """Its attribute of what `parse_args` returns."""
        return self.name.lstrip("-").replace("-", "_")

    def value(self, text: str) -> Any:
        """What a text stands for; fails with the option's name."""
        shown = self.name if self.is_option else self.metavar or self.name
        try:
            value = self.type(text)
        except BadValue as error:
            raise Failure(f"argument {shown}: {error}") from None
        if self.choices and value not in self.choices:
            raise Failure(f"argument {shown}: invalid choice: {text!r} (choose from {', '.join(map(repr, self.choices))})")
        return value


class Group:
    """Options that `--help` shows together."""

    def __init__(self, declared: list[Argument], title: str = "") -> None:
        self.declared = declared
        self.title = title

    def add_argument(self, name: str, **how: Any) -> None:
        """Declare an option or a place, by the fields of `Argument`."""
        self.declared.append(Argument(name, group=self.title, **how))


class Parser(Group):
    """The command line of one command."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__([])
        self.command = command
        self.description = description

    def add_argument_group(self, title: str) -> Group:
        """A group of options."""
        return Group(self.declared, title)

    def parse_args(self, line: Sequence[str]) -> SimpleNamespace:
        """The values by name. A line that is wrong ends the command with one sentence, `--help` with the help."""
        try:
            return self._read(line)
        except Failure as error:
            raise Failure(f"{error} (see memlint {self.command} --help)") from None

    def _read(self, line: Sequence[str]) -> SimpleNamespace:
        options = {argument.name: argument for argument in self.declared if argument.is_option}
        defaults = {argument.dest: False if argument.action == "store_true" else argument.default for argument in self.declared}
        found: dict[str, Any] = {}
        placed: list[str] = []
        unknown: list[str] = []
        words = iter(line)
        for word in words:
            name, equals, given = word.partition("=")
            if word == "--":
                placed += words
            elif word in ("-h", "--help"):
                self._help()
            elif not _is_option(word):
                placed.append(word)
            elif name not in options:
                unknown.append(word)
            elif options[name].action == "store_true":
                if equals:
                    raise Failure(f"argument {name}: ignored explicit argument {given!r}")
                found[options[name].dest] = True
            else:
                text = given if equals else next(words, None)
                if text is None or (not equals and _is_option(text)):
                    raise Failure(f"argument {name}: expected one argument")
                option, value = options[name], options[name].value(text)
                found[option.dest] = [*found.get(option.dest, ()), value] if option.action == "append" else value
        self._place(placed, found)
        if unknown or placed:
            raise Failure(f"unrecognized arguments: {' '.join([*unknown, *placed])}")
        return SimpleNamespace(**{**defaults, **found})

    def _place(self, words: list[str], found: dict[str, Any]) -> None:
        """Give the words that are no options to the places, in order; what is left over stays in `words`."""
        missing: list[str] = []
        for place in (argument for argument in self.declared if not argument.is_option):
            taken = len(words) if place.nargs in ("*", "+") else min(len(words), 1)
            if not taken and place.nargs in ("", "+"):
                missing.append(place.metavar or place.name)
            values = [place.value(word) for word in words[:taken]]
            if values:
                found[place.dest] = values if place.nargs in ("*", "+") else values[0]
            del words[:taken]
        if missing:
            raise Failure(f"the following arguments are required: {', '.join(missing)}")

    def _help(self) -> None:
        from memlint.cli.help import help_text

        print(help_text(self.command, self.description, self.declared), end="")
        raise SystemExit(0)


def _is_option(word: str) -> bool:
    """Whether a word is written as an option: `-` is standard input, `-1` a number, and a text with spaces a text."""
    return word.startswith("-") and word != "-" and " " not in word and not word[1:].replace(".", "", 1).isdigit()
