"""Loops: walked once for each member of a known sequence, or once for however many rounds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.access import iterate
from memlint.read.pyeval.conditions import condition
from memlint.read.pyeval.joins import merge, opaque
from memlint.read.pyeval.machine import Flow, Loop, Machine
from memlint.read.pyeval.values import Array, Instance, Object, Scope, Table, possible
from memlint.source import Span


def scope_of(machine: Machine, name: str) -> Scope:
    """The scope that an assignment to a name writes."""
    scope = machine.frame.scope
    if name not in scope.shared:
        return scope
    outer = scope.parent
    while outer is not None and outer.parent is not None and name not in outer.slots:
        outer = outer.parent
    return outer if outer is not None and name in outer.slots else scope.globals


def is_weaker(value: Fact, item: Fact) -> bool:
    """Whether a member is certain where its sequence stands by default only."""
    return value.status is Status.DEFAULT and item.status is Status.FIXED


def outlives_round(machine: Machine, target: ast.expr) -> bool:
    """Whether an attribute or item belongs to an object that is older than a loop whose body is walked once."""
    held = machine.evaluate(target.value) if isinstance(target, (ast.Attribute, ast.Subscript)) else None
    owners = [value for value in possible(held) if isinstance(value, Object)] if held is not None else []
    return any(owner.born < loop.born for owner in owners for loop in machine.loops if loop.once)


def changing(name: str, old: Fact, span: Span) -> Fact:
    """A value that each round of a loop makes anew from the one before."""
    return opaque(f"`{name}` changes in the loop at line {span.line}", "loop", (old,), span)


def for_loop(machine: Machine, node: ast.For | ast.AsyncFor) -> Flow:
    """`for`: every member, or one pass over what a member may be."""
    iterable = machine.evaluate(node.iter)
    items = iterate(machine, iterable.value) if iterable.known else None
    if items is not None and len(items) <= MAX_UNROLLED:
        return _unrolled(machine, node, iterable, items)
    count = iterable.value.slots.get(".count") if isinstance(iterable.value, Instance) else None
    element = _element(machine, iterable, node)
    _widen(machine, node)
    with _looping(machine, Loop(machine.span(node), iterable, count, once=True)):
        machine.semantics.assign(machine, node.target, element)
        if machine.execute(node.body) is Flow.RETURN:
            return Flow.RETURN
    return _unbroken(machine, node)


def _unbroken(machine: Machine, node: ast.For | ast.AsyncFor | ast.While) -> Flow:
    """The `else` of a loop, which a `break` somewhere in it may skip."""
    if not node.orelse:
        return Flow.NEXT
    if _breaks(node.body):
        return machine.fork([lambda: Flow.NEXT, lambda: machine.execute(node.orelse)])
    return machine.execute(node.orelse)


def _breaks(body: list[ast.stmt]) -> bool:
    """Whether a `break` of this loop stands in its body."""
    for statement in body:
        if isinstance(statement, ast.Break):
            return True
        if isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
            if _breaks(statement.orelse):
                return True
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
            blocks += [part.body for name in ("handlers", "cases") for part in getattr(statement, name, [])]
            if any(_breaks(block) for block in blocks):
                return True
    return False


MAX_UNROLLED = 24
"""Longest known sequence whose loop is walked once per member."""


def _unrolled(machine: Machine, node: ast.For | ast.AsyncFor, iterable: Fact, items: list[Fact]) -> Flow:
    with _looping(machine, Loop(machine.span(node), iterable, fixed(len(items)))):
        for item in items:
            machine.semantics.assign(
                machine, node.target, item._replace(status=Status.DEFAULT) if is_weaker(iterable, item) else item
            )
            flow = machine.execute(node.body)
            if flow is Flow.BREAK:
                return Flow.NEXT
            if flow is Flow.RETURN:
                return flow
    return _unbroken(machine, node)


def _element(machine: Machine, iterable: Fact, node: ast.For | ast.AsyncFor) -> Fact:
    """What an abstract pass over a loop sees as its element."""
    items = iterate(machine, iterable.value) if iterable.known else None
    if items:
        return merge(items)
    return opaque("an element of a loop", "element", (iterable,), machine.span(node.target))


def while_loop(machine: Machine, node: ast.While) -> Flow:
    """`while`: one pass, unless its condition never holds."""
    test = condition(machine, node.test)
    if test.status is Status.FIXED and test.value is False:
        return machine.execute(node.orelse)
    _widen(machine, node)
    with _looping(machine, Loop(machine.span(node), None, None, once=True)):
        if machine.execute(node.body) is Flow.RETURN:
            return Flow.RETURN
    return _unbroken(machine, node)


@contextmanager
def _looping(machine: Machine, loop: Loop) -> Iterator[None]:
    loop.depth = len(machine.conditions)
    machine.loops.append(loop)
    try:
        yield
    finally:
        machine.loops.pop()
        if machine.loops:
            machine.loops[-1].records.extend(loop.records)
    if not machine.loops:
        machine.library.loop_ended(machine, loop)


def _widen(machine: Machine, node: ast.For | ast.AsyncFor | ast.While) -> None:
    """Names that a loop counts up or rebuilds from themselves have no single value inside and after it."""
    for inner in ast.walk(node):
        name = None
        if (
            isinstance(inner, ast.AugAssign)
            and isinstance(inner.target, ast.Attribute)
            and isinstance(inner.target.value, ast.Name)
        ):
            _widen_attribute(machine, inner.target, machine.span(inner))
        if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Name):
            name = inner.target.id
        elif isinstance(inner, ast.Assign) and len(inner.targets) == 1 and isinstance(inner.targets[0], ast.Name):
            name = inner.targets[0].id
            if not isinstance(inner.value, ast.BinOp) or name not in {
                n.id for n in ast.walk(inner.value) if isinstance(n, ast.Name)
            }:
                name = None
        if name is None:
            continue
        scope = scope_of(machine, name)
        old = scope.slots.get(name)
        if old is not None and not isinstance(old.value, (Array, Table, Instance)):
            span = machine.span(inner)
            machine.write(scope, name, changing(name, old, span))


def _widen_attribute(machine: Machine, target: ast.Attribute, span: Span) -> None:
    for owner in possible(machine.evaluate(target.value)):
        old = owner.slots.get(target.attr) if isinstance(owner, Instance) else None
        if isinstance(owner, Instance) and isinstance(old, Fact) and not isinstance(old.value, (Array, Table, Instance)):
            machine.write(owner, target.attr, changing(ast.unparse(target), old, span))
