"""Statements: assignment, branches, loops, definitions.

One module: a function per kind of statement behind one table.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.access import get_item, iterate, set_attribute, set_item
from memlint.read.pyeval.attempts import attempt
from memlint.read.pyeval.calls import call_value
from memlint.read.pyeval.conditions import condition
from memlint.read.pyeval.expressions import evaluate
from memlint.read.pyeval.imports import import_from, import_name
from memlint.read.pyeval.joins import combine, merge, opaque
from memlint.read.pyeval.machine import Flow, Halted, Machine
from memlint.read.pyeval.operators import binary, compare
from memlint.read.pyeval.rounds import changing, for_loop, is_weaker, outlives_round, scope_of, while_loop
from memlint.read.pyeval.values import REST, Array, Call, Class, Field, Function, Opaque, Scope, Symbol, Table, possible
from memlint.typed import Any


def execute_block(machine: Machine, body: list[ast.stmt]) -> Flow:
    """Walk statements in order until one leaves the block."""
    for index, statement in enumerate(body):
        if isinstance(statement, ast.If) and _leaves(statement.body) and not _leaves(statement.orelse):
            rest = [*statement.orelse, *body[index + 1 :]]
            test = condition(machine, statement.test)
            then, otherwise = partial(execute_block, machine, statement.body), partial(execute_block, machine, rest)
            return machine.branch(test, then, otherwise)
        flow = execute(machine, statement)
        if flow is not Flow.NEXT:
            return flow
    return Flow.NEXT


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return)


def execute(machine: Machine, node: ast.stmt) -> Flow:
    """Walk one statement."""
    machine.spend()
    handler = _STATEMENTS.get(type(node))
    if handler is None:
        return Flow.NEXT
    try:
        return handler(machine, node)
    except RecursionError:
        if len(machine.frames) > SHALLOW:
            raise
        return Flow.NEXT  # one statement nested too deeply to follow; the others still count


def _expression(machine: Machine, node: ast.Expr) -> Flow:
    if not isinstance(node.value, ast.Constant):
        evaluate(machine, node.value)
    return Flow.NEXT


def _assign(machine: Machine, node: ast.Assign) -> Flow:
    value = evaluate(machine, node.value)
    for target in node.targets:
        assign(machine, target, value)
    return Flow.NEXT


def assign(machine: Machine, target: ast.expr, value: Fact) -> None:
    """Bind a value to a target: a name, an attribute, a subscript, or several of them."""
    if isinstance(target, ast.Name):
        machine.write(scope_of(machine, target.id), target.id, value)
    elif isinstance(target, ast.Attribute):
        set_attribute(machine, evaluate(machine, target.value), target.attr, value)
    elif isinstance(target, ast.Subscript):
        set_item(machine, evaluate(machine, target.value), evaluate(machine, target.slice), value)
    elif isinstance(target, ast.Starred):
        assign(machine, target.value, opaque("part of an unpacked value", "unpack", (value,), machine.span(target)))
    elif isinstance(target, (ast.Tuple, ast.List)):
        _unpack(machine, target.elts, value)


def _unpack(machine: Machine, targets: list[ast.expr], value: Fact) -> None:
    star = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
    items = [iterate(machine, v) for v in possible(value) if v is not None] if value.status is not Status.UNKNOWN else []
    if star is not None and len(items) == 1 and items[0] is not None and len(items[0]) >= len(targets) - 1:
        values, after = items[0], len(targets) - star - 1
        middle = Array(values[star : len(values) - after])
        spread = [*values[:star], fixed(middle), *values[len(values) - after :]]
        for target, item in zip(targets, spread, strict=True):
            assign(machine, target.value if isinstance(target, ast.Starred) else target, item)
        return
    if items and all(item is not None and len(item) == len(targets) for item in items):
        for index, target in enumerate(targets):
            merged = merge([item[index] for item in items if item is not None], value.decided_by)
            assign(machine, target, merged._replace(status=Status.DEFAULT) if is_weaker(value, merged) else merged)
        return
    for index, target in enumerate(targets):
        assign(machine, target, get_item(machine, value, fixed(index), machine.span(target)))


def _annotated(machine: Machine, node: ast.AnnAssign) -> Flow:
    if node.value is not None:
        assign(machine, node.target, evaluate(machine, node.value))
    return Flow.NEXT


def _augmented(machine: Machine, node: ast.AugAssign) -> Flow:
    span = machine.span(node)
    old = evaluate(machine, node.target)
    added = evaluate(machine, node.value)
    if isinstance(old.value, Array) and isinstance(node.op, ast.Add) and old.known:
        items = iterate(machine, added.value) if added.known else None
        if items is not None and machine.conditions and not old.value.open:
            longer = Array((*old.value.items, *items), old.value.kind)  # a list of its own: both lengths stay possible
            assign(machine, node.target, Fact(longer, old.status, old.origin))
            return Flow.NEXT
        if items is None:
            machine.write(old.value, REST, added.reason or "extended with something that is not known")
        else:
            machine.write(old.value, "items", old.value.items + tuple(items))
        return Flow.NEXT
    if isinstance(old.value, Table) and isinstance(node.op, ast.BitOr) and old.known and isinstance(added.value, Table):
        for key, fact in added.value.entries():
            machine.write(old.value, key, fact)
        return Flow.NEXT
    value = combine(lambda a, b: binary(node.op, a, b), (old, added), span, type(node.op).__name__)
    if not isinstance(node.target, ast.Name) and outlives_round(machine, node.target):
        value = changing(ast.unparse(node.target), old, span)
    assign(machine, node.target, value)
    return Flow.NEXT


def _if(machine: Machine, node: ast.If) -> Flow:
    return machine.branch(
        condition(machine, node.test),
        lambda: execute_block(machine, node.body),
        lambda: execute_block(machine, node.orelse),
    )


SHALLOW = 8
"""Calls in progress up to which a statement that is nested too deeply is left out alone."""


def _return(machine: Machine, node: ast.Return) -> Flow:
    machine.frame.returns.append(evaluate(machine, node.value) if node.value is not None else fixed(None))
    return Flow.RETURN


def _raise(machine: Machine, node: ast.Raise) -> Flow:
    if node.exc is not None:
        evaluate(machine, node.exc)
    raise Halted


def _assert(machine: Machine, node: ast.Assert) -> Flow:
    test = condition(machine, node.test)
    if test.status is Status.FIXED and test.value is False:
        raise Halted
    return Flow.NEXT


def _with(machine: Machine, node: ast.With | ast.AsyncWith) -> Flow:
    depth = len(machine.contexts)
    for item in node.items:
        context = evaluate(machine, item.context_expr)
        machine.contexts.append(context)
        if item.optional_vars is not None:
            assign(machine, item.optional_vars, _entered(context))
    try:
        return execute_block(machine, node.body)
    finally:
        del machine.contexts[depth:]


def _entered(context: Fact) -> Fact:
    """What `with ... as` binds: what a generator of `contextlib.contextmanager` yields, what `nullcontext` was given, else the object."""
    made = context.value
    if isinstance(made, Opaque) and made.operation in {"generator", "call:contextlib.nullcontext"} and made.parents:
        return made.parents[0]
    return context


def _match(machine: Machine, node: ast.Match) -> Flow:
    subject = evaluate(machine, node.subject)
    return _cases(machine, subject, node.cases)


def _cases(machine: Machine, subject: Fact, cases: list[ast.match_case]) -> Flow:
    if not cases:
        return Flow.NEXT
    case, rest = cases[0], cases[1:]
    test = _matches(machine, subject, case.pattern)
    if case.guard is not None and not (test.known and test.value is False):
        guard = condition(machine, case.guard)
        test = guard if test.known else test
    return machine.branch(test, lambda: execute_block(machine, case.body), lambda: _cases(machine, subject, rest))


def _matches(machine: Machine, subject: Fact, pattern: ast.pattern) -> Fact:
    span = machine.span(pattern)
    if isinstance(pattern, ast.MatchValue):
        value = evaluate(machine, pattern.value)
        return combine(lambda a, b: compare(ast.Eq(), a, b), (subject, value), span, "match")
    if isinstance(pattern, ast.MatchSingleton):
        return combine(lambda a: a is pattern.value, (subject,), span, "match")
    if isinstance(pattern, ast.MatchOr):
        tests = tuple(_matches(machine, subject, p) for p in pattern.patterns)
        return combine(lambda *values: any(values), tests, span, "match")
    if isinstance(pattern, ast.MatchAs):
        if pattern.name:
            machine.write(machine.frame.scope, pattern.name, subject)
        return _matches(machine, subject, pattern.pattern) if pattern.pattern else fixed(True)
    if isinstance(pattern, ast.MatchSequence) and isinstance(subject.value, Array) and subject.known:
        items, parts = subject.value.items, pattern.patterns
        if not subject.value.open and not any(isinstance(p, ast.MatchStar) for p in parts):
            if len(items) != len(parts):
                return fixed(False, span)
            tests = tuple(_matches(machine, item, part) for item, part in zip(items, parts, strict=True))
            return combine(lambda *values: all(values), tests, span, "match")
    for inner in ast.walk(pattern):
        if isinstance(inner, ast.MatchAs) and inner.name:
            machine.write(machine.frame.scope, inner.name, opaque("a matched part", "match", (subject,), span))
    return opaque("a pattern that is not decided", "match", (subject,), span)


def _import(machine: Machine, node: ast.Import) -> Flow:
    for alias in node.names:
        name = alias.name if alias.asname else alias.name.partition(".")[0]
        machine.write(machine.frame.scope, alias.asname or name, import_name(machine, name, machine.span(node)))
    return Flow.NEXT


def _import_from(machine: Machine, node: ast.ImportFrom) -> Flow:
    import_from(machine, node)
    return Flow.NEXT


def _function(machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Flow:
    fact = define(machine, node, node.name)
    for decorator in reversed(node.decorator_list):
        value = evaluate(machine, decorator)
        if isinstance(fact.value, Function):
            fact.value.decorators = (*fact.value.decorators, value)
        wrapped = machine.library.decorate(machine, value, fact, machine.span(decorator))
        if wrapped is None and isinstance(value.value, Function) and value.known and machine.frame.function is None:
            call = Call(value.value.name, (fact,), {}, machine.span(decorator))
            wrapped = call_value(machine, value, call)
            wrapped = wrapped if isinstance(wrapped.value, Function) else None
        fact = wrapped or fact
    scope = scope_of(machine, node.name)
    sets = any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)
    machine.write(scope, f".setter:{node.name}" if sets else node.name, fact)
    return Flow.NEXT


def define(machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> Fact:
    """The function a definition or lambda makes; its defaults are evaluated now, as Python does."""
    defaults = tuple(evaluate(machine, d) for d in node.args.defaults)
    keyword = {
        arg.arg: evaluate(machine, value)
        for arg, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if value is not None
    }
    scope = machine.frame.scope
    closure = scope.parent if scope.of_class and scope.parent is not None else scope
    function = Function(node, closure, machine.frame, name, defaults, keyword)
    return fixed(function, machine.span(node))


def _class(machine: Machine, node: ast.ClassDef) -> Flow:
    span = machine.span(node)
    bases = tuple(base.value for base in (evaluate(machine, b) for b in node.bases) if isinstance(base.value, (Class, Symbol)))
    decorators = tuple(evaluate(machine, d) for d in node.decorator_list)
    scope = Scope(machine.frame.scope, of_class=True)
    cls = Class(node.name, bases, scope, {}, decorators, span)
    frame = machine.frame
    outer = frame.scope
    frame.scope = scope
    try:
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                value = evaluate(machine, statement.value) if statement.value is not None else None
                name = statement.target.id
                cls.fields[name] = Field(
                    name, statement.annotation, value, machine.span(statement), _aliases(machine, statement.value)
                )
                if value is not None:
                    scope.slots[name] = value
            else:
                execute(machine, statement)
    finally:
        frame.scope = outer
    for fact in scope.slots.values():
        if isinstance(fact.value, Function) and fact.value.owner is None:
            fact.value.owner = cls
    made = fixed(cls, span)
    for decorator, value in zip(node.decorator_list, decorators, strict=True):
        made = machine.library.decorate(machine, value, made, machine.span(decorator)) or made
        if (
            isinstance(value.value, Function) and value.known and machine.frame.function is None
        ):  # it may enter the class in a registry
            decorated = call_value(machine, value, Call(value.value.name, (made,), {}, machine.span(decorator)))
            made = decorated if isinstance(decorated.value, Class) else made
    machine.write(scope_of(machine, node.name), node.name, made)
    return Flow.NEXT


def _aliases(machine: Machine, value: ast.expr | None) -> tuple[str, ...]:
    """Further command-line names of a field: `field(alias="-b")`, `HfArg(aliases=["-b"])`."""
    keywords = value.keywords if isinstance(value, ast.Call) else []
    for keyword in keywords:
        if keyword.arg in {"alias", "aliases"}:
            given = evaluate(machine, keyword.value)
            items = given.value.items if isinstance(given.value, Array) else (given,)
            return tuple(item.value for item in items if item.known and isinstance(item.value, str))
    return ()


def _shared(machine: Machine, node: ast.Global | ast.Nonlocal) -> Flow:
    machine.frame.scope.shared.update(node.names)
    return Flow.NEXT


def _delete(machine: Machine, node: ast.Delete) -> Flow:
    for target in node.targets:
        if isinstance(target, ast.Name):
            machine.erase(scope_of(machine, target.id), target.id)
        elif isinstance(target, ast.Subscript):
            owner, key = evaluate(machine, target.value), evaluate(machine, target.slice)
            if isinstance(owner.value, Table) and owner.known and key.known:
                machine.erase(owner.value, key.value)
    return Flow.NEXT


_STATEMENTS: dict[type[ast.stmt], Callable[[Machine, Any], Flow]] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.If: _if,
    ast.For: for_loop,
    ast.AsyncFor: for_loop,
    ast.While: while_loop,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Assert: _assert,
    ast.Try: attempt,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Match: _match,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Global: _shared,
    ast.Nonlocal: _shared,
    ast.Delete: _delete,
    ast.Break: lambda machine, node: Flow.BREAK,
    ast.Continue: lambda machine, node: Flow.CONTINUE,
}
if hasattr(ast, "TryStar"):
    _STATEMENTS[ast.TryStar] = attempt
