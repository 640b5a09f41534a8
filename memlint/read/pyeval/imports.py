"""Imports: modules of the project are read, everything else stays a name."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from memlint.facts import Fact, fixed
from memlint.read.pyeval.grammar import Text
from memlint.read.pyeval.machine import Halted, Machine
from memlint.read.pyeval.values import Module, Symbol, linked
from memlint.source import ReadError, Span

MAX_MODULES = 40
"""Modules of the project that one script pulls in at most."""
MAX_IMPORTED_BYTES = 400_000
"""Larger modules stay names."""

LIBRARIES = frozenset(
    """torch transformers trl peft accelerate datasets deepspeed bitsandbytes numpy os sys re json math time random logging
    argparse typing dataclasses pathlib functools itertools collections copy yaml tqdm wandb lightning pytorch_lightning
    unsloth tokenizers evaluate fire click typer tyro hydra omegaconf absl diffusers timm torchvision sentence_transformers
    torchao safetensors huggingface_hub pandas sklearn scipy matplotlib PIL enum abc subprocess shutil warnings contextlib
    gc glob pickle string types inspect importlib multiprocessing threading datetime uuid hashlib socket tempfile io""".split()
)
"""Top-level names never looked for in the project: the standard library and the frameworks."""


def import_module(machine: Machine, name: str, span: Span) -> Fact:
    """The module of that dotted name: read when the project has it, else a symbol."""
    module = _load(machine, name, 0)
    return fixed(module, span) if module is not None else fixed(Symbol(name), span)


def import_from(machine: Machine, node: ast.ImportFrom) -> None:
    """`from module import names` into the current scope."""
    span = machine.span(node)
    name = node.module or ""
    module = _load(machine, name, node.level)
    scope = machine.frame.scope
    for alias in node.names:
        if alias.name == "*":
            if module is not None:
                for key, fact in module.scope.slots.items():
                    if not key.startswith("_"):
                        machine.write(scope, key, fact)
            else:
                stars = scope.slots.get("*", ())
                machine.write(scope, "*", (*stars, name))
            continue
        target = alias.asname or alias.name
        fact = module.scope.slots.get(alias.name) if module is not None else None
        if fact is None:
            inner = _load(machine, f"{name}.{alias.name}" if name else alias.name, node.level)
            fact = fixed(inner, span) if inner is not None else _name(machine, f"{name}.{alias.name}".lstrip("."), span)
        else:
            fact = linked(fact, span, f"imported as `{target}`")
        machine.write(scope, target, fact)


def _name(machine: Machine, dotted: str, span: Span) -> Fact:
    return machine.library.symbol(machine, dotted, span) or fixed(Symbol(dotted), span)


def star_symbol(machine: Machine, name: str, span: Span) -> Fact | None:
    """The library that a star import may have brought a name from: one that is known to have it, or the only one."""
    stars: tuple[str, ...] = machine.frame.scope.globals.slots.get("*", ())
    for root in stars:
        if machine.library.provides(root, name):
            return fixed(Symbol(f"{root}.{name}"), span)
    return None


def _load(machine: Machine, name: str, level: int) -> Module | None:
    if machine.files is None or (not level and name.partition(".")[0] in LIBRARIES):
        return None
    path = _find(machine, name, level)
    if path is None:
        return None
    if path in machine.modules:
        return machine.modules[path]
    if len(machine.modules) >= MAX_MODULES:
        return None
    try:
        source = machine.files.read(path)
        if len(source.text) > MAX_IMPORTED_BYTES:
            return None
        text = Text(source)
    except ReadError:
        return None
    loops, machine.loops = machine.loops, []
    try:
        return machine.run_text(text, name or PurePosixPath(path).stem)
    except Halted:
        return machine.modules.get(path)
    finally:
        machine.loops = loops


def _find(machine: Machine, name: str, level: int) -> str | None:
    """The file of a module: relative to the importing file's package, or beside the entry script and the files above it."""
    resolve = getattr(machine.files, "resolve", None)
    if resolve is None:
        return None
    here = machine.frame.text.path
    link = name.replace(".", "/")
    if level:
        link = "../" * (level - 1) + link
        bases = [here]
    else:
        bases = [here] if here == machine.root else [machine.root, here]
    for base in bases:
        for candidate in ([f"{link}.py", f"{link}/__init__.py"] if name else [f"{link}__init__.py"]):
            for prefix in ("",) if level else ("", "src/"):
                found: str | None = resolve(prefix + candidate, base)
                if found is not None:
                    return found
    return None
