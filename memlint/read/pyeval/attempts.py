"""`try`: what the body does, what its handlers would do instead, and which of them counts.

The body counts, unless the machine decides: a package that may be missing, or an error of the environment that a handler
answers by setting the same variables. Then both outcomes are possible.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from memlint.read.pyeval.joins import opaque
from memlint.read.pyeval.machine import Flow, Halted, Machine
from memlint.typed import Any

_REQUIRED = frozenset({"torch", "transformers", "datasets", "accelerate", "peft", "trl", "numpy", "tqdm", "lightning",
                       "pytorch_lightning", "unsloth"})  # fmt: skip
"""Packages without which a training script does not run: a fallback for one of them is for another version of it."""
_MISSING = frozenset({"ImportError", "ModuleNotFoundError", "Exception"})
_ENVIRONMENT = frozenset({"Exception", "BaseException", "RuntimeError", "OSError", "EnvironmentError", "OutOfMemoryError"})
"""Errors that the machine decides over. A missing key, file or attribute is decided by what can be read."""


def attempt(machine: Machine, node: Any) -> Flow:
    """Walk a `try` statement."""
    body = [*node.body, *node.orelse]
    caught = _caught(node.handlers)
    imported = _optional_imports(node.body) if caught & _MISSING else set()
    try:
        if imported:
            flow = _installed_or_not(machine, node, imported)
        elif caught & _ENVIRONMENT and set(_assigned(node.body)) & {n for h in node.handlers for n in _assigned(h.body)}:
            flow = machine.fork([partial(machine.execute, body), *_handlers(machine, node)])
        else:
            flow = machine.execute(body)
    except Halted:
        if not node.handlers:
            machine.execute(node.finalbody)
            raise
        flow = machine.fork(_handlers(machine, node))
    final = machine.execute(node.finalbody)
    return final if final is not Flow.NEXT else flow


def _handlers(machine: Machine, node: Any) -> list[Any]:
    return [partial(_handle, machine, handler) for handler in node.handlers]


def _handle(machine: Machine, handler: ast.ExceptHandler) -> Flow:
    if handler.name:
        machine.write(machine.frame.scope, handler.name, opaque("an exception", "exception"))
    return machine.execute(handler.body)


def _caught(handlers: list[ast.ExceptHandler]) -> set[str]:
    """The names of the caught exceptions; a bare `except` is `Exception`."""
    found: set[str] = set()
    for handler in handlers:
        if handler.type is None:
            found.add("Exception")
            continue
        for inner in ast.walk(handler.type):
            if isinstance(inner, ast.Attribute):
                found.add(inner.attr)
            elif isinstance(inner, ast.Name):
                found.add(inner.id)
    return found


def _optional_imports(body: list[ast.stmt]) -> set[str]:
    """The names that a block imports from packages that may be missing; none when it imports a required one.

    `try: import flash_attn; attn = "flash_attention_2"` with `except ImportError: attn = "sdpa"` decides by what is installed.
    """
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.ImportFrom):
            roots = {(statement.module or "").partition(".")[0]}
            if statement.level:
                return set()
        elif isinstance(statement, ast.Import):
            roots = {alias.name.partition(".")[0] for alias in statement.names}
        else:
            continue
        if roots & _REQUIRED:
            return set()
        names.update((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
    return names


def _installed_or_not(machine: Machine, node: Any, imported: set[str]) -> Flow:
    """Both outcomes of optional imports. What they bind is there afterwards, so that its uses are understood."""
    scope = machine.frame.scope
    found: dict[str, Any] = {}

    def installed() -> Flow:
        flow = machine.execute([*node.body, *node.orelse])
        found.update({name: scope.slots[name] for name in imported if name in scope.slots})
        return flow

    flow = machine.fork([installed, *_handlers(machine, node)])
    for name, value in found.items():
        machine.write(scope, name, value)
    return flow


def _assigned(body: list[ast.stmt]) -> Iterator[str]:
    """The variables that a block assigns by name, functions and classes in it left out."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            yield from (inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name)) if target is not None else ()
        for name in ("body", "orelse", "finalbody"):
            yield from _assigned(getattr(statement, name, []))
