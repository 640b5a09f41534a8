"""Command lines read off a function's signature or a dataclass's fields: what fire, typer, tyro and their relatives share."""

from __future__ import annotations

import ast

from memlint.facts import Fact, fixed
from memlint.read.pyeval.annotations import parameter_options
from memlint.read.pyeval.argument_parsers import fill, own_options
from memlint.read.pyeval.calls import call_function, call_value
from memlint.read.pyeval.joins import opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.options import TO_BOOL, TO_FLOAT, TO_INT, Option, Words, guessed, read_words, settle
from memlint.read.pyeval.values import Call, Class, Function, Instance, Native
from memlint.source import Span


def launched_words(machine: Machine) -> tuple[list[Fact], bool]:
    """The words of the launch, and whether there is one."""
    return (list(machine.launch.argv), True) if machine.launch is not None else ([], False)


def run_signature(
    machine: Machine,
    function: Fact,
    span: Span,
    words: list[Fact] | None = None,
    *,
    owner: Fact | None = None,
    repeats: bool = False,
) -> Fact | None:
    """Call a function with the values that the command line (or its defaults) gives its parameters.

    `owner` is the object of a method. With `repeats` a parameter of several values takes one word each time that it is written.
    """
    target = function.value
    if not isinstance(target, Function):
        return call_value(machine, function, Call("cli", (), {}, span))
    given, launched = launched_words(machine) if words is None else (words, machine.launch is not None)
    options = parameter_options(target, span)[1 if owner is not None else 0 :]
    _apply_metadata(target, options, skipped=owner is not None)
    nested = _records(machine, target, options, span)
    for option in options:
        if repeats and option.nargs == "+":
            option.nargs, option.action = None, "append"
    read = read_words([*options, *(inner for _, inners, _ in nested for inner in inners)], given, prefixes=False)
    names = [o for o in options if o.dest not in read.values]
    for extra, free in zip(read.rest, names, strict=False):
        read.values[free.dest] = free.convert(extra) if free.convert is not None else extra
    values = settle(options, read, launched)
    call = Call(target.name, (), values, span)
    for name, _, cls in nested:
        if any(dest.startswith(f"{name}.") for dest in read.values) or values[name].value is None:
            values[name] = fill_nested(machine, cls, read, launched, call, f"{name}.")
    if target.node.args.kwarg is not None:
        values |= {flag.lstrip("-").replace("-", "_"): guessed(words[0]) for flag, words in read.extras.items()}
    return call_function(machine, target, Call(target.name, (owner,) if owner is not None else (), values, span))


def _records(machine: Machine, function: Function, options: list[Option], span: Span) -> list[tuple[str, list[Option], Fact]]:
    """Parameters that are dataclasses of the script: their name, the options of their fields, and the class."""
    arguments = function.node.args
    notes = {a.arg: a.annotation for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    found: list[tuple[str, list[Option], Fact]] = []
    for option in options:
        cls = option.default.value.cls if option.default is not None and isinstance(option.default.value, Instance) else None
        note = notes.get(option.dest)
        if cls is None and isinstance(note, ast.Name) and isinstance(fact := function.scope.slots.get(note.id), Fact):
            cls = fact.value
        if isinstance(cls, Class) and cls.is_record:
            found.append((option.dest, nested_options(fixed(cls, span), f"{option.dest}."), fixed(cls, span)))
    return found


_ANNOTATED = {"int": TO_INT, "float": TO_FLOAT, "bool": TO_BOOL, "bool_arg": TO_BOOL, "str": None}


def _apply_metadata(function: Function, options: list[Option], *, skipped: bool) -> None:
    """typer and fastcore keep further settings in the annotation or the default: `Annotated[int, typer.Option("--bs")]`."""
    arguments = function.node.args
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs][1 if skipped else 0 :]
    for arg, opt in zip(names, options, strict=True):
        note = arg.annotation
        if isinstance(note, ast.Subscript) and isinstance(note.slice, ast.Tuple):
            for part in note.slice.elts[1:]:
                if isinstance(part, ast.Call):
                    flags = tuple(a.value for a in part.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
                    if flags:
                        opt.flags = tuple(f for flag in flags for f in flag.split("/")[:1])
        elif isinstance(note, ast.Call) and len(note.args) > 1 and isinstance(note.args[1], ast.Name):
            opt.convert = _ANNOTATED.get(note.args[1].id, guessed)
        elif isinstance(note, ast.Name) and note.id in {"store_true", "store_false"}:
            opt.action = note.id.removeprefix("store_")
        elif isinstance(note, ast.Name) and note.id == "bool_arg":
            opt.convert = TO_BOOL
        default = opt.default
        if default is not None and isinstance(default.value, Instance) and ".typer" in default.value.slots:
            inner = default.value.slots[".typer"]
            written = default.value.slots[".flags"]
            opt.default = inner
            opt.required = inner is None
            opt.flags = written or opt.flags


def from_type(machine: Machine, target: Fact, call: Call) -> Fact:
    """tyro and relatives: a dataclass is filled, a function is called."""
    if isinstance(target.value, (Function, Native)):
        return run_signature(machine, target, call.span) or fixed(None)
    if not isinstance(target.value, Class):
        return opaque("a command line of a type that is not followed", "cli", (), call.span)
    words, launched = launched_words(machine)
    options = nested_options(target)
    read = read_words(options, words, prefixes=False)
    return fill_nested(machine, target, read, launched, call, "")


def nested_options(cls: Fact, prefix: str = "") -> list[Option]:
    """Options of a dataclass and, dotted, of the dataclasses in it."""
    options = own_options(cls)
    found: list[Option] = []
    for opt in options:
        if prefix:
            opt.flags = tuple(f"--{prefix}{flag.lstrip('-')}" for flag in opt.flags)
            opt.off_flags = tuple(f"--{prefix}{flag.lstrip('-')}" for flag in opt.off_flags)
            opt.dest = f"{prefix}{opt.dest}"
        inner = opt.default.value if opt.default is not None else None
        if isinstance(inner, Instance) and isinstance(inner.cls, Class):
            found += nested_options(fixed(inner.cls), f"{opt.dest}.")
        found.append(opt)
    return found


def fill_nested(machine: Machine, cls: Fact, read: Words, launched: bool, call: Call, prefix: str) -> Fact:
    """A dataclass whose fields' words stand under a dotted prefix."""
    made = fill(machine, cls, _under(read, prefix), launched, call)
    if isinstance(made.value, Instance):
        for key, fact in list(made.value.slots.items()):
            if isinstance(fact, Fact) and isinstance(fact.value, Instance) and isinstance(fact.value.cls, Class):
                under = f"{prefix}{key}."
                if any(name.startswith(under) for name in read.values):
                    machine.write(made.value, key, fill_nested(machine, fixed(fact.value.cls), read, launched, call, under))
    return made


def _under(read: Words, prefix: str) -> Words:
    return Words(
        {k.removeprefix(prefix): f for k, f in read.values.items() if k.startswith(prefix)}, read.extras if not prefix else {}, []
    )
