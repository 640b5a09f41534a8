"""Paths, opened files, `exec` and environment variables."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from memlint.facts import Fact, Status, fixed
from memlint.paths import folder_of
from memlint.read.pyeval.environment import variable
from memlint.read.pyeval.files import execute_text
from memlint.read.pyeval.joins import Unknowable, combine, merge, opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Call, Instance, Symbol
from memlint.typed import Any


def _join_path(machine: Machine, call: Call) -> Fact | None:
    def one(*parts: Any) -> str:
        if not all(isinstance(p, str) for p in parts):
            raise Unknowable("a path that is not known")
        return str(posixpath.join(*parts))

    return combine(one, call.args, call.span, "path") if call.args else None


def _path_part(function: Callable[[str], str]) -> Callable[[Machine, Call], Fact | None]:
    def one(value: Any) -> str:
        if not isinstance(value, str):
            raise Unknowable("a path that is not known")
        return function(value)

    return lambda machine, call: combine(one, call.args[:1], call.span, "path") if call.args else None


def _open(machine: Machine, call: Call) -> Fact | None:
    path = call.argument("file", 0)
    if path is None:
        return None
    return fixed(Instance(Symbol("builtins.open"), call, {".path": path}), call.span)


def _exec(machine: Machine, call: Call) -> Fact | None:
    return execute_text(machine, call)


def _getenv(machine: Machine, call: Call) -> Fact | None:
    if not call.args:
        return None
    name = call.args[0]
    otherwise = call.argument("default", 1) or fixed(None, call.span)
    if name.status is Status.UNKNOWN:
        return opaque(name.reason, "environ", (name,), call.span)
    return merge([variable(machine, value, otherwise, call.span) for value in name.values])


def _setdefault_env(machine: Machine, call: Call) -> Fact | None:
    if len(call.args) == 2 and call.args[0].known and isinstance(call.args[0].value, str):
        launched = machine.launch.env.get(call.args[0].value) if machine.launch is not None else None
        if launched is None:
            machine.environ.setdefault(call.args[0].value, call.args[1])
    return None


def _first(machine: Machine, call: Call) -> Fact | None:
    return call.args[0] if call.args else None


SYSTEM_CALLS: dict[str, Callable[[Machine, Call], Fact | None]] = {
    "builtins.open": _open,
    "builtins.exec": _exec,
    "os.path.join": _join_path,
    "os.path.dirname": _path_part(folder_of),
    "os.path.basename": _path_part(posixpath.basename),
    "os.path.abspath": _first,
    "os.path.realpath": _first,
    "os.path.expanduser": _first,
    "os.path.normpath": _path_part(posixpath.normpath),
    "os.fspath": _first,
    "pathlib.Path": _join_path,
    "pathlib.PurePath": _join_path,
    "os.getenv": _getenv,
    "os.environ.get": _getenv,
    "os.environ.setdefault": _setdefault_env,
}
