"""Files that a script opens: text to `exec`, YAML and JSON that become dicts with the places of their values."""

from __future__ import annotations

from memlint.facts import Fact, Origin, Status, fixed
from memlint.read.pyeval.grammar import Text
from memlint.read.pyeval.joins import constant, opaque, weaken
from memlint.read.pyeval.machine import Halted, Machine
from memlint.read.pyeval.values import Call, Instance, Scope, Symbol
from memlint.source import Kind, ReadError, Source, Span
from memlint.typed import Any

MAX_EXECUTED = 200_000
"""Longest text that `exec` is followed into."""


def source_of(machine: Machine, path: Fact, kind: Kind | None = None) -> Source | None:
    """The file of the project that a path names, or None; with `kind` a file of any kind is read as that."""
    if not path.known or not isinstance(path.value, str) or machine.files is None:
        return None
    directory = getattr(machine.launch, "directory", None)
    read_link = getattr(machine.files, "read_link", None)
    if read_link is None:
        return None
    places = [machine.root, machine.frame.text.path, getattr(machine.launch, "path", "")]
    for place in dict.fromkeys(p for p in places if p):
        source: Source | None = read_link(path.value, place, directory=directory, otherwise=kind)
        if source is not None:
            if source.path not in machine.read_paths:
                machine.read_paths.append(source.path)
            return source
    return None


def text_of(machine: Machine, path: Fact, span: Span) -> Fact:
    """The content of a file as a text; the origin is the file."""
    source = source_of(machine, path, Kind.SHELL)
    if source is None:
        reason = path.reason or f"the file {path.value!r} is not in the project"
        return opaque(reason, "file", (path,), span)
    return Fact(source.text, path.status, (Origin(Span(source.path, 1), "file content"), *path.origin))


def execute_text(machine: Machine, call: Call) -> Fact:
    """`exec(text)`: a known text is walked in the current globals; an unknown one leaves them overridable."""
    code = call.args[0] if call.args else fixed("")
    scope = machine.frame.scope.globals
    if isinstance(code.value, Instance) and ".text" in code.value.slots:
        code = code.value.slots[".text"]
    if not code.known or not isinstance(code.value, str) or len(code.value) > MAX_EXECUTED:
        overridable(machine, scope)
        return fixed(None, call.span)
    if machine.launch is None and "argv" in code.value:
        overridable(machine, scope)
    path = code.origin[0].span.path if code.origin and code.origin[0].span else call.span.path
    try:
        text = Text(Source(path, Kind.PYTHON, code.value))
    except ReadError:
        return fixed(None, call.span)
    if sum(frame.text.path == path for frame in machine.frames) > 3:
        return fixed(None, call.span)
    name, file = scope.slots.get("__name__"), scope.slots.get("__file__")
    try:
        machine.run_text(text, "__main__", scope)
    except Halted:
        pass
    finally:
        if name is not None and file is not None:
            machine.write(scope, "__name__", name)
            machine.write(scope, "__file__", file)
    return fixed(None, call.span)


def overridable(machine: Machine, scope: Scope) -> None:
    """Constants that something not known may replace become defaults."""
    for key, fact in list(scope.slots.items()):
        if isinstance(fact, Fact) and fact.status is Status.FIXED and constant(fact.value) and not str(key).startswith("__"):
            machine.write(scope, key, weaken(fact))


def file_method(machine: Machine, owner: Instance, name: str, call: Call) -> Fact | None:
    """Methods of an opened file."""
    if name in {"read", "readlines"} and ".path" in owner.slots:
        return text_of(machine, owner.slots[".path"], call.span)
    return None


def is_open_file(value: Any) -> bool:
    """Whether a value is what `open` returned."""
    return isinstance(value, Instance) and isinstance(value.cls, Symbol) and value.cls.name == "builtins.open"
