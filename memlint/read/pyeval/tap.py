"""typed-argument-parser: a class whose annotated names are its options.

typed-argument-parser 1.10 (`tap/tap.py`): a boolean with the default True is switched off by its flag, unless
`explicit_bool=True`; `configure()` may declare an option further, `process_args()` runs after parsing.
"""

from __future__ import annotations

from memlint.facts import Fact, Status
from memlint.read.pyeval.annotations import field_options
from memlint.read.pyeval.argument_parsers import given_words, parser_method
from memlint.read.pyeval.joins import linked
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.options import Option, read_words, settle
from memlint.read.pyeval.values import Call, Class, Function, Instance


def is_tap(value: Instance) -> bool:
    """Whether an object's class extends `Tap`."""
    return isinstance(value.cls, Class) and value.library.partition(".")[0] == "tap" and value.library.endswith("Tap")


def tap_method(machine: Machine, owner: Fact, tap: Instance, name: str, call: Call) -> Fact | None:
    """`parse_args()` of such an object, and what its `configure()` calls."""
    if name in {"add_argument", "set_defaults"}:
        return parser_method(machine, tap, name, call)
    if name != "parse_args" or not isinstance(tap.cls, Class):
        return None
    _hook(machine, owner, tap.cls, "configure", call)
    options = {option.dest: option for option in field_options(tap.cls, dashes=_says(tap, "underscores_to_dashes"))}
    for option in options.values():
        if option.action == "switch" and not _says(tap, "explicit_bool"):
            on = option.default is not None and option.default.known and option.default.value is True
            option.action, option.off_flags = "false" if on else "true", ()
    for key, declared in list(tap.slots.items()):
        if isinstance(declared, Option) and str(key).startswith(".option:"):
            options[declared.dest] = _joined(options.get(declared.dest), declared)
    words, launched = given_words(machine, call)
    for name, fact in settle(options.values(), read_words(options.values(), words), launched).items():
        machine.write(tap, name, linked(fact, call.span, "parsed here"))
    _hook(machine, owner, tap.cls, "process_args", call)
    return owner


def _joined(own: Option | None, declared: Option) -> Option:
    """An option of the class with what `add_argument` says about it."""
    if own is None:
        return declared
    own.flags = tuple(dict.fromkeys((*own.flags, *declared.flags)))
    own.default = declared.default or own.default
    own.convert = declared.convert or own.convert
    own.choices = declared.choices or own.choices
    own.nargs = declared.nargs if declared.nargs is not None else own.nargs
    if declared.action != "store":
        own.action = declared.action
    own.required = own.default is None
    return own


def _says(tap: Instance, name: str) -> bool:
    given = tap.call.kwargs.get(name)
    return given is not None and given.status is not Status.UNKNOWN and given.value is True


def _hook(machine: Machine, owner: Fact, cls: Class, name: str, call: Call) -> None:
    found = cls.find(name)
    if found is not None and isinstance(found.value, Function):
        machine.follow(found.value, Call(name, (owner,), {}, call.span))
