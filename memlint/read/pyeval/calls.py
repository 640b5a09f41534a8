"""Calls: of functions and classes of the script (followed), of builtins, and of libraries (asked of the framework models)."""

from __future__ import annotations

import ast

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.access import get_attribute, held, iterate
from memlint.read.pyeval.builtins import call_builtin
from memlint.read.pyeval.construction import Super, call_super, decorators, instantiate, record_method, super_of, with_self
from memlint.read.pyeval.expressions import evaluate
from memlint.read.pyeval.joins import merge, merge_table, opaque, weaken
from memlint.read.pyeval.machine import DEPTH, Flow, Frame, Halted, Machine
from memlint.read.pyeval.methods import builtin_method
from memlint.read.pyeval.values import (
    ABSENT,
    REST,
    Array,
    Attributes,
    Bound,
    Call,
    Class,
    Function,
    Instance,
    Native,
    Opaque,
    Scope,
    Symbol,
    Table,
    possible,
)
from memlint.source import Span
from memlint.typed import Any

MAX_CALLEES = 4
"""Alternatives of a callee that are followed."""
MAX_RECURSION = 6
"""Calls of a function inside itself that are followed: as deep as nested configurations are merged."""


def evaluate_call(machine: Machine, node: ast.Call) -> Fact:
    """The value of a call expression."""
    if isinstance(node.func, ast.Attribute):
        return _method_call(machine, node, node.func)
    callee = evaluate(machine, node.func)
    return call_value(machine, callee, _arguments(machine, node, _shown(node.func)))


def _shown(node: ast.expr) -> str:
    try:
        return ast.unparse(node) if not isinstance(node, ast.Call) else "(...)"
    except (ValueError, RecursionError):
        return "call"


def _arguments(machine: Machine, node: ast.Call, name: str) -> Call:
    args: list[Fact] = []
    kwargs: dict[Any, Any] = {}
    open_ = ""
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            value = evaluate(machine, argument.value)
            members = iterate(machine, value.value) if value.known else None
            if members is None:
                open_ = value.reason or "unpacks arguments that are not known"
            else:
                args.extend(members)
        else:
            args.append(evaluate(machine, argument))
    for keyword in node.keywords:
        value = evaluate(machine, keyword.value)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif isinstance(value.value, Instance) and ".items" in value.value.slots:
            merge_table(kwargs, fixed(held(value.value)))
        elif isinstance(value.value, Instance) and value.known and not isinstance(value.value.cls, Symbol):
            kwargs.update({k: v for k, v in value.value.slots.items() if not str(k).startswith(".")})
        else:
            merge_table(kwargs, value)
            if isinstance(value.value, Attributes) and value.known and isinstance(value.value.owner.cls, (Symbol, Class)):
                _with_defaults(machine, value.value.owner, kwargs, machine.span(keyword.value))
    open_ = kwargs.pop(REST, "") or open_
    named = {str(key): fact for key, fact in kwargs.items() if isinstance(fact, Fact)}
    return Call(name, tuple(args), named, machine.span(node), open_)


def _with_defaults(machine: Machine, owner: Instance, kwargs: dict[Any, Any], span: Span) -> None:
    """`**vars(training_args)`: the attributes that the library's class sets by itself come along, too."""
    names = machine.library.fields(owner.library)
    for name in names:
        fact = machine.library.attribute(machine, owner, name, span) if name not in kwargs else None
        if fact is not None:
            kwargs[name] = fact
    if names:
        kwargs.pop(REST, None)


def _method_call(machine: Machine, node: ast.Call, func: ast.Attribute) -> Fact:
    owner = evaluate(machine, func.value)
    span = machine.span(func)
    if isinstance(owner.value, Symbol) and owner.known:
        symbol = fixed(Symbol(f"{owner.value.name}.{func.attr}"), span)
        return call_value(machine, symbol, _arguments(machine, node, symbol.value.name))
    call = _arguments(machine, node, func.attr)
    owners = possible(owner)
    if not owners or owner.status is Status.UNKNOWN:
        return _unknown_method(machine, owner, func.attr, call)
    results = [invoke(machine, _one(owner, value), func.attr, call) for value in owners[:MAX_CALLEES]]
    return merge(results, owner.decided_by if len(results) == 2 else "")


def _one(owner: Fact, value: Any) -> Fact:
    return owner if owner.known else Fact(value, Status.FIXED, owner.origin)


def invoke(machine: Machine, owner: Fact, name: str, call: Call) -> Fact:
    """`owner.name(...)` for one known owner."""
    value = owner.value
    if isinstance(value, (Table, Array, str, bytes, int, float, Scope)) or value is None:
        return builtin_method(machine, owner, name, call)
    if isinstance(value, Super):
        return call_super(machine, value, name, call) or _unknown_result(machine, value.owner, name, call)
    if isinstance(value, Instance):
        slot = value.slots.get(name)
        if isinstance(slot, Fact):
            return call_value(machine, slot, call)
        if isinstance(value.cls, Class):
            found = value.cls.find(name)
            if found is not None:
                if isinstance(found.value, Function):
                    return call_function(machine, found.value, with_self(owner, found.value, call))
                return call_value(machine, found, call)
            if ".items" in value.slots:
                return builtin_method(machine, fixed(held(value)), name, call)
            if value.cls.is_record and (made := record_method(machine, owner, name, call)) is not None:
                return made
        return machine.library.method(machine, owner, name, call) or _unknown_result(machine, owner, name, call)
    if isinstance(value, Class):
        found = value.find(name)
        if found is not None and isinstance(found.value, Function):
            static = any(decorator == "classmethod" for decorator in decorators(found.value))
            return call_function(machine, found.value, call.upon(owner) if static else call)
        if value.is_record and (made := record_method(machine, owner, name, call)) is not None:
            return made
        for base in value.lineage():
            if isinstance(base, Symbol):
                result = machine.library.call(machine, f"{base.name}.{name}", call)
                if result is not None:
                    return result
        return _unknown_result(machine, owner, name, call)
    if isinstance(value, Function) and name in _ELSEWHERE:
        return call_function(machine, value, call)
    return call_value(machine, get_attribute(machine, owner, name, call.span), call)


_ELSEWHERE = frozenset({"remote", "spawn", "local", "delay", "submit", "starmap", "__call__"})
"""Methods of a function wrapped by Ray, Modal, Dask and the like that run it somewhere."""


def _unknown_method(machine: Machine, owner: Fact, name: str, call: Call) -> Fact:
    return machine.library.method(machine, owner, name, call) or _unknown_result(machine, owner, name, call)


_RUNNERS = frozenset({"optimize", "agent", "Process", "Thread", "Tuner", "with_parameters", "with_resources", "TorchTrainer",
                      "submit", "apply_async", "launch", "elastic_launch", "fmin", "minimize"})  # fmt: skip
"""Library functions whose only reason to get a function of the script is to run it (Optuna, wandb sweeps, Ray, executors)."""


def _unknown_result(machine: Machine, owner: Fact | None, name: str, call: Call) -> Fact:
    """The result of a call that nothing is known about; functions passed to it are looked into."""
    inputs = (*((owner,) if owner is not None else ()), *call.args, *call.kwargs.values())
    for fact in inputs:
        callee = _callee(fact.value) if fact.known else None
        if callee is not None and name.rpartition(".")[2] in _RUNNERS and not machine.observing:
            call_value(machine, callee, Call(name, (), {}, call.span, f"passed by `{name}`"))
        elif callee is not None:
            observe(machine, callee.value)
    reason = f"the result of `{name}(...)` is not known"
    return opaque(reason, f"call:{name}", inputs, call.span, call=call, contexts=tuple(machine.contexts))


_ELSEWHERE_CALLED = "called elsewhere"


def observe(machine: Machine, value: Any) -> None:
    """Look into what somebody else calls (a function, a method, a `partial`, an object with `__call__`, a dataset's `__getitem__`),
    with unknown arguments, and undo what it does."""
    callee = _callee(value) or _items_of(value)
    function = _written(callee) if callee is not None else None
    if callee is None or function is None or machine.observing or any(frame.function is function for frame in machine.frames):
        return
    if not machine.library.interesting(function.home.text.text):
        return
    machine.shadow += 1
    machine.observing += 1
    loops, machine.loops = machine.loops, []
    try:
        with machine.undone():
            call_value(machine, callee, Call(function.name, (), {}, machine.span(function.node), _ELSEWHERE_CALLED))
    except Halted:
        pass
    finally:
        machine.shadow -= 1
        machine.observing -= 1
        machine.loops = loops


def _callee(value: Any) -> Fact | None:
    """A value as something to call, or None."""
    if isinstance(value, Instance):
        method = value.cls.find("__call__") if isinstance(value.cls, Class) else None
        return fixed(Bound(fixed(value), method.value)) if method is not None and isinstance(method.value, Function) else None
    return fixed(value) if isinstance(value, (Function, Bound, Native)) else None


def _items_of(value: Any) -> Fact | None:
    """What gives a dataset's samples, or None."""
    if not isinstance(value, Instance) or not isinstance(value.cls, Class):
        return None
    method = value.cls.find("__getitem__") or value.cls.find("__iter__")
    return fixed(Bound(fixed(value), method.value)) if method is not None and isinstance(method.value, Function) else None


def _written(callee: Fact) -> Function | None:
    """The function of the script that a callee runs, or None."""
    value = callee.value
    if isinstance(value, Native) and value.name == "partial":
        value = value.parts[0].value
    if isinstance(value, Bound):
        value = value.function
    return value if isinstance(value, Function) else None


def call_value(machine: Machine, callee: Fact, call: Call) -> Fact:
    """Call a value."""
    if callee.status is Status.UNKNOWN:
        return machine.library.method(machine, callee, "__call__", call) or _unknown_result(machine, callee, call.name, call)
    results = [_call_one(machine, callee, value, call) for value in callee.values[:MAX_CALLEES] if value is not ABSENT]
    if not results:
        return _unknown_result(machine, callee, call.name, call)
    return merge(results, callee.decided_by if len(results) == 2 else "")


def _call_one(machine: Machine, callee: Fact, value: Any, call: Call) -> Fact:
    if isinstance(value, Function):
        return call_function(machine, value, call)
    if isinstance(value, Native):
        return value.invoke(call)
    if isinstance(value, Bound):
        if isinstance(value.function, Function):
            return call_function(machine, value.function, with_self(value.owner, value.function, call))
        return invoke(machine, value.owner, value.function, call)
    if isinstance(value, Class):
        return instantiate(machine, value, call)
    if isinstance(value, Symbol):
        if value.name == "builtins.super":
            return super_of(machine, call)
        return (
            call_builtin(machine, value.name, call)
            or machine.library.call(machine, value.name, call)
            or _unknown_result(machine, None, value.name, call)
        )
    if isinstance(value, Instance):
        return invoke(machine, Fact(value, Status.FIXED, callee.origin), "__call__", call)
    return _unknown_result(machine, callee, call.name, call)


# --- functions ------------------------------------------------------------------------------------------------------


def call_function(machine: Machine, function: Function, call: Call) -> Fact:
    """Follow a call of a function of the script."""
    machine.spend(2)
    active = sum(frame.function is function for frame in machine.frames)
    if active > MAX_RECURSION or len(machine.frames) >= DEPTH:
        return opaque(f"`{function.name}` calls itself too deeply to follow", f"call:{function.name}", call.args, call.span)
    scope = Scope(function.scope)
    _bind(machine, function, call, scope)
    home: Frame = function.home
    frame = Frame(scope, home.text, home.module, function, call.span)
    machine.frames.append(frame)
    depth = len(machine.contexts)
    machine.contexts.extend(d for d in function.decorators if isinstance(d.value, (Instance, Opaque)))
    try:
        if isinstance(function.node, ast.Lambda):
            return evaluate(machine, function.node.body)
        flow = machine.execute(function.node.body)
    except Halted:
        if not frame.returns:
            raise
        flow = Flow.RETURN  # an earlier path, in a loop, has left the function
    finally:
        machine.frames.pop()
        del machine.contexts[depth:]
    if frame.yields:
        return opaque("what a generator yields", "generator", frame.yields, call.span)
    if flow is not Flow.RETURN and frame.returns:
        frame.returns.append(fixed(None))
    return merge(frame.returns, reason="the function has several results") if frame.returns else fixed(None, call.span)


def _bind(machine: Machine, function: Function, call: Call, scope: Scope) -> None:
    node = function.node.args
    positional = [*node.posonlyargs, *node.args]
    kwargs = dict(call.kwargs)
    defaults = dict(zip([a.arg for a in positional][len(positional) - len(function.defaults) :], function.defaults, strict=True))
    defaults.update(function.kw_defaults)
    for index, arg in enumerate([*positional, *node.kwonlyargs]):
        name = arg.arg
        if index < len(positional) and index < len(call.args):
            value = call.args[index]
            kwargs.pop(name, None)
        elif name in kwargs:
            value = kwargs.pop(name)
        elif call.open == _ELSEWHERE_CALLED and name in defaults:
            value = weaken(defaults[name])  # who calls it may pass another value
        elif call.open:
            value = opaque(call.open, f"parameter:{name}", (), machine.span(function.node))
        elif name in defaults:
            value = defaults[name]
        else:
            value = opaque(f"`{name}` of `{function.name}` is not passed", f"parameter:{name}", (), call.span)
        if value.status is Status.CHOICES and ABSENT in value.choices:
            otherwise = defaults.get(name)
            known = [Fact(v, Status.FIXED, value.origin) for v in value.choices if v is not ABSENT]
            value = merge([*known, otherwise] if otherwise is not None else known)
        scope.slots[name] = value
    if node.vararg:
        scope.slots[node.vararg.arg] = fixed(Array(call.args[len(positional) :], "tuple", call.open), call.span)
    if node.kwarg:
        table = Table(dict(kwargs))
        if call.open:
            table.slots[REST] = call.open
        scope.slots[node.kwarg.arg] = fixed(table, call.span)
