"""Imports: modules of the project are read when one of their names is used, everything else stays a name."""

from __future__ import annotations

import ast
from posixpath import basename, splitext

from memlint.facts import Fact, fixed
from memlint.read.pyeval.grammar import Text
from memlint.read.pyeval.joins import linked
from memlint.read.pyeval.libraries import LIBRARIES
from memlint.read.pyeval.machine import Halted, Machine
from memlint.read.pyeval.values import Module, Pending, Scope, Symbol
from memlint.source import ReadError, Span

MAX_MODULES = 24
"""Modules of the project that one script pulls in at most."""
MAX_IMPORTED = 400_000
"""Characters of modules that one script pulls in at most."""


def import_name(machine: Machine, name: str, span: Span) -> Fact:
    """What `import name` binds: the module, later."""
    if name.partition(".")[0] in LIBRARIES:
        return machine.library.symbol(machine, name, span) or fixed(Symbol(name), span)
    return fixed(Pending(name, 0, "", machine.frame.text.path, span), span)


def import_from(machine: Machine, node: ast.ImportFrom) -> None:
    """`from module import names` into the current scope."""
    span = machine.span(node)
    name = node.module or ""
    scope = machine.frame.scope
    known = not node.level and name.partition(".")[0] in LIBRARIES
    for alias in node.names:
        if alias.name == "*":
            _star(machine, scope, name, node.level, span)
        elif known:
            dotted = f"{name}.{alias.name}"
            value = machine.library.symbol(machine, dotted, span) or fixed(Symbol(dotted), span)
            machine.write(scope, alias.asname or alias.name, value)
        else:
            pending = Pending(name, node.level, alias.name, machine.frame.text.path, span)
            machine.write(scope, alias.asname or alias.name, fixed(pending, span))


def _star(machine: Machine, scope: Scope, name: str, level: int, span: Span) -> None:
    module = _load(machine, name, level, machine.frame.text.path)
    if module is None:
        machine.write(scope, "*", (*scope.slots.get("*", ()), name))
        return
    for key, fact in module.scope.slots.items():
        if not key.startswith("_") and isinstance(fact, Fact):
            machine.write(scope, key, fact)


def resolved(machine: Machine, fact: Fact) -> Fact:
    """The fact itself, or what a pending import stands for."""
    seen = 0
    while isinstance(fact.value, Pending) and fact.known and seen < 8:
        fact = _resolve(machine, fact.value)
        seen += 1
    return fact


def _resolve(machine: Machine, pending: Pending) -> Fact:
    module = _load(machine, pending.module, pending.level, pending.path) if pending.module or pending.level else None
    if not pending.name:
        dotted = pending.module
        return fixed(module if module is not None else Symbol(dotted), pending.span)
    found = module.scope.slots.get(pending.name) if module is not None else None
    if isinstance(found, Fact):
        return linked(found, pending.span, f"imported as `{pending.name}`")
    dotted = f"{pending.module}.{pending.name}" if pending.module else pending.name
    inner = _load(machine, dotted, pending.level, pending.path)
    if inner is not None:
        return fixed(inner, pending.span)
    return machine.library.symbol(machine, dotted, pending.span) or fixed(Symbol(dotted), pending.span)


def submodule(machine: Machine, module: Module, name: str, span: Span) -> Fact:
    """`package.module` where the package is one of the project."""
    inner = _load(machine, f"{module.name}.{name}", 0, machine.frame.text.path)
    return fixed(inner if inner is not None else Symbol(f"{module.name}.{name}"), span)


def star_symbol(machine: Machine, name: str, span: Span) -> Fact | None:
    """The library that a star import may have brought a name from: one that is known to have it."""
    stars: tuple[str, ...] = machine.frame.scope.globals.slots.get("*", ())
    for root in stars:
        if machine.library.provides(root, name):
            return fixed(Symbol(f"{root}.{name}"), span)
    return None


def _load(machine: Machine, name: str, level: int, importer: str) -> Module | None:
    if machine.files is None or (not level and name.partition(".")[0] in LIBRARIES):
        return None
    path = _find(machine, name, level, importer)
    if path is None:
        return None
    if path in machine.modules:
        return machine.modules[path]
    if len(machine.modules) >= MAX_MODULES:
        return None
    try:
        source = machine.files.read(path)
        machine.imported += len(source.text)
        if machine.imported > MAX_IMPORTED:
            return None
        text = Text(source)
    except ReadError:
        return None
    loops, machine.loops = machine.loops, []
    try:
        return machine.run_text(text, name or splitext(basename(path))[0])
    except Halted:
        return machine.modules.get(path)
    finally:
        machine.loops = loops


def _find(machine: Machine, name: str, level: int, importer: str) -> str | None:
    """The file of a module: relative to the importing file's package, or beside the entry script and the files above it."""
    resolve = getattr(machine.files, "resolve", None)
    if resolve is None:
        return None
    key = (name, level, importer)
    if key not in machine.module_paths:
        machine.module_paths[key] = _search(resolve, machine.root, name, level, importer)
    return machine.module_paths[key]


def _search(resolve: object, root: str, name: str, level: int, importer: str) -> str | None:
    assert callable(resolve)
    link = "../" * (level - 1) + name.replace(".", "/")
    bases = [importer] if level or importer == root else [root, importer]
    candidates = [f"{link}.py", f"{link}/__init__.py"] if name else [f"{link}__init__.py"]
    for base in bases:
        for candidate in candidates:
            for prefix in ("",) if level else ("", "src/"):
                found: str | None = resolve(prefix + candidate, base)
                if found is not None:
                    return found
    return None
