"""Expressions: names, attributes, subscripts, operators, displays and comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from posixpath import join

from memlint.facts import Fact, Status, default, fixed
from memlint.paths import posix
from memlint.read.pyeval.access import bound, get_attribute, get_item, is_environ
from memlint.read.pyeval.builtins import BUILTINS
from memlint.read.pyeval.conditions import condition, truth_of
from memlint.read.pyeval.displays import MAX_DISPLAY, comprehension, dict_display, display
from memlint.read.pyeval.imports import resolved, star_symbol
from memlint.read.pyeval.joins import Unknowable, combine, constant, decider, linked, merge, opaque, weaken
from memlint.read.pyeval.libraries import unread
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.operators import binary, compare, unary
from memlint.read.pyeval.values import Array, Class, Instance, Opaque, Pending, Scope, Symbol, Table, possible
from memlint.source import Span
from memlint.typed import Any


def evaluate(machine: Machine, node: ast.expr) -> Fact:
    """The abstract value of an expression."""
    machine.spend()
    handler = _EXPRESSIONS.get(type(node))
    if handler is None:
        return opaque("an expression that is not followed", type(node).__name__, (), machine.span(node))
    return handler(machine, node)


def _constant(machine: Machine, node: ast.Constant) -> Fact:
    return fixed(node.value, machine.span(node))


def evaluate_name(machine: Machine, node: ast.Name) -> Fact:
    """A variable, a builtin, or a name that a star import may have brought."""
    span = machine.span(node)
    scope: Scope | None = machine.frame.scope
    while scope is not None:
        fact = scope.slots.get(node.id)
        if fact is not None and not (node.id in scope.shared and scope.parent is not None):
            if isinstance(fact.value, Pending):
                fact = resolved(machine, fact)
                scope.slots[node.id] = fact
            return bound(linked(fact, span, f"`{node.id}`"))
        scope = scope.parent
    if node.id in BUILTINS or node.id in _EXCEPTIONS:
        return fixed(Symbol(f"builtins.{node.id}"), span)
    return star_symbol(machine, node.id, span) or opaque(f"`{node.id}` is not defined here", "name", (), span)


_EXCEPTIONS = frozenset(
    {"Exception", "BaseException", "ValueError", "KeyError", "TypeError", "RuntimeError", "ImportError", "SystemExit",
     "NotImplementedError", "AssertionError", "OSError", "IOError", "FileNotFoundError", "AttributeError", "object",
     "ModuleNotFoundError", "StopIteration", "KeyboardInterrupt", "EnvironmentError", "IndexError", "Warning"}
)  # fmt: skip


def _attribute(machine: Machine, node: ast.Attribute) -> Fact:
    return get_attribute(machine, evaluate(machine, node.value), node.attr, machine.span(node))


def _subscript(machine: Machine, node: ast.Subscript) -> Fact:
    owner = evaluate(machine, node.value)
    span = machine.span(node)
    if isinstance(node.slice, ast.Slice):
        return _slice(machine, owner, node.value, node.slice, span)
    generic = isinstance(owner.value, Symbol) or (isinstance(owner.value, Class) and not owner.value.is_enumeration)
    if generic and owner.known and not is_environ(owner.value):
        return owner
    return get_item(machine, owner, evaluate(machine, node.slice), span)


def _slice(machine: Machine, owner: Fact, sliced: ast.expr, node: ast.Slice, span: Span) -> Fact:
    bounds = tuple(evaluate(machine, n) if n is not None else fixed(None) for n in (node.lower, node.upper, node.step))

    def cut(value: Any, start: Any, stop: Any, step: Any) -> Any:
        if not all(b is None or isinstance(b, int) for b in (start, stop, step)) or step == 0:
            raise Unknowable("a slice with bounds that are not numbers")
        if isinstance(value, Array) and not value.open:
            return Array(value.items[start:stop:step], value.kind)
        if isinstance(value, (str, bytes)):
            return value[start:stop:step]
        raise Unknowable("a slice of something that is not known")

    if node.lower is None and node.step is None and isinstance(node.upper, (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp)):
        machine.library.cut(machine, _last_name(sliced), bounds[1], span)
    start = bounds[0].value
    if isinstance(start, Opaque) and start.operation == "element":
        for value in possible(start.parents[0]):
            if isinstance(value, Instance) and len(value.slots.get(".range", ())) == 3:
                machine.library.strided(machine, value.slots[".range"][2], span)
    fact = combine(cut, (owner, *bounds), span, "slice")
    if fact.status is Status.UNKNOWN:
        return opaque(owner.reason or fact.reason, "slice", (owner, *bounds), span)
    return fact


def _last_name(node: ast.expr) -> str:
    """`ids` of `self.ids` and of `batch["ids"]`; `a_ids+b_ids` of a sum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"{_last_name(node.left)}+{_last_name(node.right)}"
    if isinstance(node, ast.Subscript):
        node = node.slice
    return node.attr if isinstance(node, ast.Attribute) else str(getattr(node, "id", getattr(node, "value", "")))


def _binary(machine: Machine, node: ast.BinOp) -> Fact:
    left, right = evaluate(machine, node.left), evaluate(machine, node.right)
    span = machine.span(node)
    if left.known and right.known:
        a, b = left.value, right.value
        if isinstance(a, Array) and isinstance(b, Array) and isinstance(node.op, ast.Add):
            return fixed(Array(a.items + b.items, a.kind, a.open or b.open), span)
        if isinstance(a, Array) and isinstance(b, int) and isinstance(node.op, ast.Mult):
            if 0 <= len(a.items) * b <= MAX_DISPLAY:
                return fixed(Array(a.items * b, a.kind, a.open), span)
            return opaque("the list is too long to compute here", "Mult", (left, right), span)
        if isinstance(a, Array) and isinstance(b, Array) and "set" in a.kind and type(node.op) in _SETS:
            return combine(lambda x, y: _of_sets(node.op, x, y), (left, right), span, type(node.op).__name__)
        if isinstance(a, Table) and isinstance(b, Table) and isinstance(node.op, ast.BitOr):
            return fixed(Table({**a.slots, **b.slots}), span)
        if isinstance(a, str) and isinstance(node.op, ast.Mod):
            return _percent(left, right, span)
        if isinstance(a, str) and isinstance(b, str) and isinstance(node.op, ast.Div):
            return combine(lambda x, y: posix(join(x, y)), (left, right), span, "path")
    return combine(lambda a, b: binary(node.op, a, b), (left, right), span, type(node.op).__name__)


_SETS = (ast.BitOr, ast.BitAnd, ast.Sub)


def _of_sets(op: ast.operator, a: Array, b: Array) -> Array:
    """Union, intersection and difference of sets of constants."""
    if a.open or b.open or not all(f.known and constant(f.value) for f in (*a.items, *b.items)):
        raise Unknowable("a set that is not known")
    first, second = ({f.value: f for f in side.items} for side in (a, b))
    if isinstance(op, ast.BitOr):
        return Array({**second, **first}.values(), a.kind)
    return Array([f for value, f in first.items() if (value in second) is isinstance(op, ast.BitAnd)], a.kind)


def _percent(left: Fact, right: Fact, span: Span) -> Fact:
    values = right.value.items if isinstance(right.value, Array) else (right,)
    if not all(f.known and constant(f.value) for f in values):
        return opaque("text made from values that are not known", "format", (left, right), span)
    try:
        text = left.value % tuple(f.value for f in values)
    except (TypeError, ValueError) as error:
        return opaque(f"the formatting fails: {error}", "format", (left, right), span)
    return fixed(text, span) if len(text) <= MAX_DISPLAY else opaque("the text is too long", "format", (), span)


def _unary(machine: Machine, node: ast.UnaryOp) -> Fact:
    operand = evaluate(machine, node.operand)
    if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant) and operand.known and constant(operand.value):
        return combine(lambda a: unary(node.op, a), (operand,), machine.span(node), "USub")
    return combine(lambda a: unary(node.op, a), (operand,), machine.span(node), type(node.op).__name__)


def _boolean(machine: Machine, node: ast.BoolOp) -> Fact:
    stop = isinstance(node.op, ast.Or)
    facts: list[Fact] = []
    overridable = False
    for operand in node.values:
        fact = evaluate(machine, operand)
        test = truth_of(machine, fact, machine.span(operand))
        last = operand is node.values[-1]
        if test.known and test.value is not stop and not last:
            overridable |= test.status is Status.DEFAULT
            continue
        facts.append(fact)
        if test.known and test.value is stop:
            overridable |= test.status is Status.DEFAULT
            break
    if len(facts) == 1:
        return weaken(facts[0]) if overridable and constant(facts[0].value) else facts[0]
    tests = [truth_of(machine, f, machine.span(node)) for f in facts]
    if all(t.status is not Status.UNKNOWN for t in tests) and all(isinstance(v, bool) for f in facts for v in f.values):
        fold: Callable[..., Any] = (lambda *v: any(v)) if stop else (lambda *v: all(v))
        return combine(fold, tuple(facts), machine.span(node), "Or" if stop else "And")
    unknowns = [f for f in facts if f.status is Status.UNKNOWN]
    if unknowns:
        return opaque(unknowns[0].reason, "Or" if stop else "And", facts, machine.span(node))
    return merge(facts)


def _compare(machine: Machine, node: ast.Compare) -> Fact:
    span = machine.span(node)
    facts = [evaluate(machine, node.left)]
    tests: list[Fact] = []
    for op, operand in zip(node.ops, node.comparators, strict=True):
        facts.append(evaluate(machine, operand))
        probe = _none_test(op, facts[-2], facts[-1], span) or _signature_test(op, facts[-2], facts[-1], span)
        tests.append(probe or combine(lambda a, b, o=op: compare(o, a, b), (facts[-2], facts[-1]), span, type(op).__name__))
    if len(tests) == 1:
        return tests[0]
    return combine(lambda *values: all(values), tuple(tests), span, "compare")


def _none_test(op: ast.cmpop, left: Fact, right: Fact, span: Span) -> Fact | None:
    """`x is None` for an unknown `x` that is the result of a call of a class or of a model is False."""
    if not isinstance(op, (ast.Is, ast.IsNot)) or right.value is not None or not right.known:
        return None
    value = left.value
    if left.status is Status.UNKNOWN and isinstance(value, Opaque) and value.operation == "made":
        return fixed(isinstance(op, ast.IsNot), span)
    return None


_SIGNATURES = frozenset({"call:inspect.signature", "call:inspect.getfullargspec", "call:dataclasses.fields"})
_NAMED = ("model_fields", "__dataclass_fields__", "__annotations__", "co_varnames")


def _signature_test(op: ast.cmpop, item: Fact, container: Fact, span: Span) -> Fact | None:
    """`"x" in inspect.signature(C).parameters`: a script asks so whether a library's version takes what it has ready; taken for yes."""
    if not isinstance(op, (ast.In, ast.NotIn)) or not isinstance(item.value, str):
        return None
    if isinstance(container.value, Symbol):
        asked = container.value.name.endswith(_NAMED)
    else:
        above = Opaque("", (container,)).ancestry() if container.status is Status.UNKNOWN else ()
        asked = any(isinstance(v, Opaque) and v.operation in _SIGNATURES for v in above)
    if not asked:
        return None
    return default(isinstance(op, ast.In), "a script asks a library's signature for what it takes", span)


def _conditional(machine: Machine, node: ast.IfExp) -> Fact:
    test = condition(machine, node.test)
    if test.known:
        fact = evaluate(machine, node.body if test.value else node.orelse)
        if test.status is Status.DEFAULT and fact.known:
            return weaken(fact)
        return fact
    facts = [evaluate(machine, node.body), evaluate(machine, node.orelse)]
    decided_by, flipped = decider(test)
    if flipped:
        facts.reverse()
    return linked(merge(facts, decided_by), machine.span(node), "one of two")


def _joined(machine: Machine, node: ast.JoinedStr) -> Fact:
    parts: list[Fact] = []
    for value in node.values:
        if isinstance(value, ast.FormattedValue):
            parts.append(_formatted(machine, value))
        else:
            parts.append(evaluate(machine, value))
    return combine(lambda *texts: _text(texts), tuple(parts), machine.span(node), "f-string")


def _text(texts: tuple[Any, ...]) -> str:
    text = "".join(texts)
    if len(text) > 20_000:
        raise Unknowable("the text is too long to compute here")
    return text


def _formatted(machine: Machine, node: ast.FormattedValue) -> Fact:
    value = evaluate(machine, node.value)
    spec = evaluate(machine, node.format_spec) if node.format_spec is not None else fixed("")

    def show(item: Any, form: Any) -> str:
        if isinstance(item, Symbol):
            if reason := unread(item):
                raise Unknowable(reason)
            item = item.name
        if not constant(item):
            raise Unknowable("text made from an object")
        if node.conversion == ord("r"):
            item = repr(item)
        try:
            digits = "".join(c if c.isdigit() else " " for c in str(form)).split()
            return "" if any(int(d) > 999 for d in digits) else format(item, form)
        except (TypeError, ValueError) as error:
            raise Unknowable(f"the formatting fails: {error}") from None

    return combine(show, (value, spec), machine.span(node), "f-string")


def _lambda(machine: Machine, node: ast.Lambda) -> Fact:
    return machine.semantics.define(machine, node, "lambda")


def _named(machine: Machine, node: ast.NamedExpr) -> Fact:
    value = evaluate(machine, node.value)
    machine.semantics.assign(machine, node.target, value)
    return value


def _yield(machine: Machine, node: ast.Yield | ast.YieldFrom) -> Fact:
    value = evaluate(machine, node.value) if node.value is not None else fixed(None)
    machine.frame.yields.append(value)
    return opaque("what a generator receives", "yield", (), machine.span(node))


def _call(machine: Machine, node: ast.Call) -> Fact:
    return machine.semantics.apply(machine, node)


def _await(machine: Machine, node: ast.Await) -> Fact:
    return evaluate(machine, node.value)


_EXPRESSIONS: dict[type[ast.expr], Callable[[Machine, Any], Fact]] = {
    ast.Constant: _constant,
    ast.Name: evaluate_name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Call: _call,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.JoinedStr: _joined,
    ast.FormattedValue: _formatted,
    ast.List: display,
    ast.Tuple: display,
    ast.Set: display,
    ast.Dict: dict_display,
    ast.ListComp: comprehension,
    ast.SetComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.DictComp: comprehension,
    ast.Lambda: _lambda,
    ast.NamedExpr: _named,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Await: _await,
}
