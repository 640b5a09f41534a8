"""Expressions: names, attributes, subscripts, operators, displays and comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.builtins import BUILTINS, sequence
from memlint.read.pyeval.environment import variable
from memlint.read.pyeval.imports import resolved, star_symbol, submodule
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.operators import binary, compare, truth, unary
from memlint.read.pyeval.values import (
    ABSENT,
    REST,
    Array,
    Bound,
    Call,
    Class,
    Function,
    Instance,
    Module,
    Opaque,
    Pending,
    Scope,
    Symbol,
    Table,
    Unknowable,
    combine,
    constant,
    linked,
    merge,
    merge_table,
    opaque,
    possible,
    weaken,
)
from memlint.source import Span

MAX_DISPLAY = 2_000
"""Longest list or dict display whose members are evaluated."""
MAX_ALTERNATIVES = 8
"""Entries of a dict up to which an unknown key gives a closed set."""
MAX_MEMBERS = 64
"""Longest known sequence that a comprehension walks member by member."""


def evaluate(machine: Machine, node: ast.expr) -> Fact:
    """The abstract value of an expression."""
    machine.spend()
    handler = _EXPRESSIONS.get(type(node))
    if handler is None:
        return opaque("an expression that is not followed", type(node).__name__, (), machine.span(node))
    return handler(machine, node)


def condition(machine: Machine, node: ast.expr) -> Fact:
    """The truth of an expression: a bool, choices of bools, or unknown."""
    return truth_of(machine, evaluate(machine, node), machine.span(node))


def truth_of(machine: Machine, fact: Fact, span: Span) -> Fact:
    """The truth of a value as a fact."""
    if fact.status is Status.UNKNOWN:
        return fact
    if fact.known and isinstance(fact.value, bool):
        return fact
    return combine(truth, (fact,), span, "truth")


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
            return _unwrapped(linked(fact, span, f"`{node.id}`"))
        scope = scope.parent
    if node.id in BUILTINS or node.id in _EXCEPTIONS:
        return fixed(Symbol(f"builtins.{node.id}"), span)
    return star_symbol(machine, node.id, span) or opaque(f"`{node.id}` is not defined here", "name", (), span)


_EXCEPTIONS = frozenset(
    {"Exception", "BaseException", "ValueError", "KeyError", "TypeError", "RuntimeError", "ImportError", "SystemExit",
     "NotImplementedError", "AssertionError", "OSError", "IOError", "FileNotFoundError", "AttributeError", "object",
     "ModuleNotFoundError", "StopIteration", "KeyboardInterrupt", "EnvironmentError", "IndexError", "Warning"}
)  # fmt: skip


def _unwrapped(fact: Fact) -> Fact:
    """A variable that is bound on some paths only has the values of those paths."""
    if fact.status is Status.CHOICES and ABSENT in fact.choices:
        rest = tuple(v for v in fact.choices if v is not ABSENT)
        return Fact(rest[0], Status.FIXED, fact.origin) if len(rest) == 1 else fact
    return fact


def _attribute(machine: Machine, node: ast.Attribute) -> Fact:
    return get_attribute(machine, evaluate(machine, node.value), node.attr, machine.span(node))


def get_attribute(machine: Machine, owner: Fact, name: str, span: Span) -> Fact:
    """`owner.name`."""
    if owner.status is Status.UNKNOWN:
        return opaque(owner.reason, f"attribute:{name}", (owner,), span)
    found = [_attribute_of(machine, owner, value, name, span) for value in owner.values]
    fact = merge(found, owner.decided_by if len(found) == 2 else "")
    return weaken(fact) if owner.status is Status.DEFAULT and constant(fact.value) else fact


def _attribute_of(machine: Machine, owner: Fact, value: Any, name: str, span: Span) -> Fact:
    if isinstance(value, Symbol):
        dotted = f"{value.name}.{name}"
        return machine.library.symbol(machine, dotted, span) or fixed(Symbol(dotted), span)
    if isinstance(value, Module):
        fact = value.scope.slots.get(name)
        return linked(resolved(machine, fact), span, f"`{name}`") if fact is not None else submodule(machine, value, name, span)
    if isinstance(value, Class):
        if name in {"__name__", "__qualname__"}:
            return fixed(value.name, span)
        return value.find(name) or opaque(f"`{value.name}.{name}` is not defined here", f"attribute:{name}", (owner,), span)
    if isinstance(value, Instance):
        fact = value.slots.get(name)
        if fact is not None:
            return present(machine, value, name, linked(fact, span, f"`.{name}`"), span)
        if isinstance(value.cls, Class):
            found = value.cls.find(name)
            if found is not None and isinstance(found.value, Function):
                if any(_is_property(d) for d in found.value.decorators):
                    return machine.follow(found.value, Call(name, (fixed(value),), {}, span))
                return fixed(Bound(fixed(value), found.value), span)
            if found is not None:
                return linked(found, span, f"`.{name}`")
        known = machine.library.attribute(machine, value, name, span)
        if known is not None:
            return known
        return opaque(f"`.{name}` is not set here", f"attribute:{name}", (fixed(value),), span)
    if isinstance(value, Table) and name in value.slots:
        return linked(value.slots[name], span, f"`.{name}`")
    if isinstance(value, str) and name in {"parent", "name", "stem", "suffix"}:
        path = PurePosixPath(value)
        return fixed(str(getattr(path, name)), span)
    if name == "value" and constant(value):
        return fixed(value, span)  # a member of an enumeration
    if isinstance(value, (Table, Array, str, bytes)):
        return fixed(Bound(fixed(value), name), span)
    return opaque(f"`.{name}` of something that is not followed", f"attribute:{name}", (owner,), span)


def present(machine: Machine, owner: Instance, name: str, fact: Fact, span: Span) -> Fact:
    """An attribute that some paths leave unset has the library's default there."""
    if fact.status is not Status.CHOICES or ABSENT not in fact.choices:
        return fact
    otherwise = machine.library.attribute(machine, owner, name, span)
    rest = [Fact(v, Status.FIXED, fact.origin) for v in fact.choices if v is not ABSENT]
    return merge([*rest, otherwise] if otherwise is not None else rest)


def _is_property(decorator: Fact) -> bool:
    name = decorator.value.name.rpartition(".")[2] if isinstance(decorator.value, Symbol) else ""
    return name in {"property", "cached_property"}


def set_attribute(machine: Machine, owner: Fact, name: str, value: Fact) -> None:
    """`owner.name = value`; an owner that is one of several gets it as one more possibility."""
    targets = [v for v in possible(owner) if isinstance(v, (Instance, Module, Class, Table))]
    if not targets:
        machine.library.assigned(machine, owner, name, value)
    for target in targets:
        slots = target if isinstance(target, (Instance, Table)) else target.scope
        old = slots.slots.get(name)
        fact = value if len(targets) == 1 or old is None else merge([old, value])
        machine.write(slots, name, fact)
        if isinstance(target, Instance):
            machine.write(target, f".set:{name}", True)


def _subscript(machine: Machine, node: ast.Subscript) -> Fact:
    owner = evaluate(machine, node.value)
    span = machine.span(node)
    if isinstance(node.slice, ast.Slice):
        return _slice(machine, owner, node.slice, span)
    if isinstance(owner.value, (Symbol, Class)) and owner.known and not _is_environ(owner.value):
        return owner
    return get_item(machine, owner, evaluate(machine, node.slice), span)


def _is_environ(value: Any) -> bool:
    return isinstance(value, Symbol) and value.name.endswith("environ")


def _slice(machine: Machine, owner: Fact, node: ast.Slice, span: Span) -> Fact:
    bounds = tuple(evaluate(machine, n) if n is not None else fixed(None) for n in (node.lower, node.upper, node.step))

    def cut(value: Any, start: Any, stop: Any, step: Any) -> Any:
        if not all(b is None or isinstance(b, int) for b in (start, stop, step)) or step == 0:
            raise Unknowable("a slice with bounds that are not numbers")
        if isinstance(value, Array) and not value.open:
            return Array(value.items[start:stop:step], value.kind)
        if isinstance(value, (str, bytes)):
            return value[start:stop:step]
        raise Unknowable("a slice of something that is not known")

    start = bounds[0].value
    if isinstance(start, Opaque) and start.operation == "element":
        for value in possible(start.parents[0]):
            if isinstance(value, Instance) and len(value.slots.get(".range", ())) == 3:
                machine.library.strided(machine, value.slots[".range"][2], span)
    fact = combine(cut, (owner, *bounds), span, "slice")
    if fact.status is Status.UNKNOWN:
        return opaque(owner.reason or fact.reason, "slice", (owner, *bounds), span)
    return fact


def get_item(machine: Machine, owner: Fact, key: Fact, span: Span) -> Fact:
    """`owner[key]`."""
    if key.status is Status.UNKNOWN and owner.known and isinstance(owner.value, Table):
        rows = [fact for _, fact in owner.value.entries()]
        if not owner.value.open and 0 < len(rows) <= MAX_ALTERNATIVES:
            return linked(merge(rows, reason=key.reason), span, "one of the dict's values")
    if owner.status is Status.UNKNOWN or key.status is Status.UNKNOWN:
        reason = owner.reason if owner.status is Status.UNKNOWN else key.reason
        return opaque(reason, "item", (owner, key), span)
    found: list[Fact] = []
    for value in owner.values:
        for index in key.values:
            if _is_environ(value):
                found.append(variable(machine, index, None, span))
            else:
                found.append(_item_of(machine, value, index, span, owner, key))
    decided_by = owner.decided_by or key.decided_by
    fact = merge(found, decided_by if len(found) == 2 else "")
    if Status.DEFAULT in (owner.status, key.status):
        fact = weaken(fact)
    return linked(fact, span, "looked up here")


def _item_of(machine: Machine, value: Any, index: Any, span: Span, owner: Fact, key: Fact) -> Fact:
    if isinstance(value, Table) and _hashable(index):
        if index in value.slots:
            fact: Fact = value.slots[index]
            return _unwrapped(fact)
        return opaque(value.open or f"no key {index!r} in the dict", "item", (owner, key), span)
    if isinstance(value, Array) and isinstance(index, int):
        if not value.open and -len(value.items) <= index < len(value.items):
            return value.items[index]
        return opaque(value.open or "the index is out of range", "item", (owner, key), span)
    if isinstance(value, (str, bytes)) and isinstance(index, int) and -len(value) <= index < len(value):
        return Fact(value[index], Status.FIXED, owner.origin)
    if isinstance(value, Instance):
        known = machine.library.attribute(machine, value, f"[{index}]", span) if constant(index) else None
        if known is not None:
            return known
        if isinstance(index, str) and index in value.slots:
            slot: Fact = value.slots[index]
            return slot
        return machine.library.method(machine, fixed(value), "__getitem__", Call("__getitem__", (key,), {}, span)) or opaque(
            "an item of an object", "item", (owner, key), span
        )
    if isinstance(value, Class) and isinstance(index, str):
        return value.find(index) or opaque("a member that is not defined", "item", (owner, key), span)
    return opaque("an item of something that is not followed", "item", (owner, key), span)


def _hashable(value: Any) -> bool:
    return constant(value) or isinstance(value, (Symbol, Class, Function))


def set_item(machine: Machine, owner: Fact, key: Fact, value: Fact) -> None:
    """`owner[key] = value`."""
    for target in possible(owner):
        if _is_environ(target) and isinstance(key.value, str):
            machine.environ[key.value] = value
        elif isinstance(target, Table):
            if key.status is Status.UNKNOWN or not all(_hashable(k) for k in key.values):
                machine.write(target, REST, "a key that is not known was set")
                continue
            for index in key.values:
                machine.write(target, index, value if key.known else merge([target.slots.get(index, fixed(ABSENT)), value]))
        elif isinstance(target, Array):
            items = list(target.items)
            if key.known and isinstance(key.value, int) and -len(items) <= key.value < len(items):
                items[key.value] = value
                machine.write(target, "items", tuple(items))
            else:
                machine.write(target, REST, "a member that is not known was set")
        elif (isinstance(target, Instance) and isinstance(key.value, str)) or (
            isinstance(target, Scope) and isinstance(key.value, str)
        ):
            machine.write(target, key.value, value)


def iterate(machine: Machine, value: Any) -> list[Fact] | None:
    """The members that iterating a value gives, or None when they are not all known."""
    if isinstance(value, Array):
        return None if value.open else list(value.items)
    if isinstance(value, Table):
        return None if value.open else [fixed(key) for key, _ in value.entries()]
    if isinstance(value, str) and len(value) <= MAX_MEMBERS:
        return [fixed(char) for char in value]
    if isinstance(value, Instance) and isinstance(value.cls, Class) and "NamedTuple" in value.library:
        return [value.slots[name] for name in value.cls.all_fields() if name in value.slots]
    if isinstance(value, Instance) and ".members" in value.slots:
        members: Array = value.slots[".members"]
        return None if members.open else list(members.items)
    return None


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
        if isinstance(a, Table) and isinstance(b, Table) and isinstance(node.op, ast.BitOr):
            return fixed(Table({**a.slots, **b.slots}), span)
        if isinstance(a, str) and isinstance(node.op, ast.Mod):
            return _percent(left, right, span)
        if isinstance(a, str) and isinstance(b, str) and isinstance(node.op, ast.Div):
            return combine(lambda x, y: str(PurePosixPath(x) / y), (left, right), span, "path")
    return combine(lambda a, b: binary(node.op, a, b), (left, right), span, type(node.op).__name__)


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
        probe = _none_test(op, facts[-2], facts[-1], span)
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


def _conditional(machine: Machine, node: ast.IfExp) -> Fact:
    test = condition(machine, node.test)
    if test.known:
        fact = evaluate(machine, node.body if test.value else node.orelse)
        if test.status is Status.DEFAULT and fact.known:
            return weaken(fact)
        return fact
    facts = [evaluate(machine, node.body), evaluate(machine, node.orelse)]
    if test.choices == (False, True):
        facts.reverse()
    decided_by = test.decided_by if test.status is Status.CHOICES else ""
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


def _display(machine: Machine, node: ast.List | ast.Tuple | ast.Set) -> Fact:
    kind = {ast.List: "list", ast.Tuple: "tuple", ast.Set: "set"}[type(node)]
    span = machine.span(node)
    if len(node.elts) > MAX_DISPLAY:
        return fixed(Array((), kind, f"a {kind} of {len(node.elts):,} members is not read"), span)
    items: list[Fact] = []
    open_ = ""
    for element in node.elts:
        if isinstance(element, ast.Starred):
            value = evaluate(machine, element.value)
            members = iterate(machine, value.value) if value.known else None
            items.extend(members or ())
            open_ = open_ if members is not None else value.reason or "unpacks something that is not known"
        else:
            items.append(evaluate(machine, element))
    return fixed(Array(items, kind, open_), span)


def _dict(machine: Machine, node: ast.Dict) -> Fact:
    span = machine.span(node)
    if len(node.keys) > MAX_DISPLAY:
        return fixed(Table({REST: f"a dict of {len(node.keys):,} entries is not read"}), span)
    table = Table()
    for key, value in zip(node.keys, node.values, strict=True):
        fact = evaluate(machine, value)
        if key is None:
            merge_table(table.slots, fact)
            continue
        index = evaluate(machine, key)
        if index.known and _hashable(index.value):
            table.slots[index.value] = fact
        else:
            table.slots[REST] = index.reason or "a key that is not known"
    return fixed(table, span)


def _comprehension(machine: Machine, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Fact:
    span = machine.span(node)
    frame = machine.frame
    outer = frame.scope
    frame.scope = Scope(outer)
    results: list[tuple[Fact | None, Fact]] = []
    sources: list[Fact] = []
    complete = True

    def walk(index: int) -> None:
        nonlocal complete
        if index == len(node.generators):
            if isinstance(node, ast.DictComp):
                results.append((evaluate(machine, node.key), evaluate(machine, node.value)))
            else:
                results.append((None, evaluate(machine, node.elt)))
            return
        generator = node.generators[index]
        iterable = evaluate(machine, generator.iter)
        sources.append(iterable)
        items = sequence(iterable.value) if iterable.known else None
        if items is None or len(items) > MAX_MEMBERS or len(results) > MAX_DISPLAY:
            complete = False
            items = [opaque("an element of a loop", "element", (iterable,), span)]
        for item in items:
            machine.semantics.assign(machine, generator.target, item)
            tests = [condition(machine, test) for test in generator.ifs]
            if any(t.known and not t.value for t in tests):
                continue
            complete = complete and all(t.known for t in tests)
            walk(index + 1)

    try:
        walk(0)
    finally:
        frame.scope = outer
    if not complete:
        return opaque("built in a loop over something that is not known", "comprehension",
                      [*sources, *(value for _, value in results)], span)  # fmt: skip
    if isinstance(node, ast.DictComp):
        table = Table()
        for key, value in results:
            if key is not None and key.known and _hashable(key.value):
                table.slots[key.value] = value
            else:
                table.slots[REST] = "a key that is not known"
        return fixed(table, span)
    return fixed(Array((value for _, value in results), "set" if isinstance(node, ast.SetComp) else "list"), span)


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
    ast.List: _display,
    ast.Tuple: _display,
    ast.Set: _display,
    ast.Dict: _dict,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.Lambda: _lambda,
    ast.NamedExpr: _named,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Await: _await,
}
