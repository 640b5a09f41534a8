"""Methods of texts, lists, dicts and other builtin values."""

from __future__ import annotations

from posixpath import splitext

from memlint.facts import Fact, fixed
from memlint.paths import posix
from memlint.read.pyeval.files import text_of
from memlint.read.pyeval.joins import Unknowable, combine, constant, linked, merge_table, opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.objects import attributes_of
from memlint.read.pyeval.operators import MAX_TEXT
from memlint.read.pyeval.sequences import as_value, sequence
from memlint.read.pyeval.values import REST, Array, Call, Instance, Scope, Symbol, Table
from memlint.typed import Any

_TEXT_METHODS = frozenset(
    """lower upper strip lstrip rstrip split rsplit splitlines startswith endswith replace title capitalize removeprefix
    removesuffix isdigit partition rpartition count find index zfill casefold""".split()  # noqa: SIM905
)


def builtin_method(machine: Machine, owner: Fact, name: str, call: Call) -> Fact:
    """A method of a text, list, dict or other builtin value."""
    value = owner.value
    inputs = (owner, *call.args, *call.kwargs.values())
    if isinstance(value, Scope):
        value = Table(value.slots)
    if isinstance(value, str):
        return _text_method(machine, owner, name, call)
    if isinstance(value, Table):
        result = _table_method(machine, value, name, call)
    elif isinstance(value, Array):
        result = _array_method(machine, value, name, call)
    else:
        result = None
    return result or opaque(f"the result of `.{name}()` is not known", f"call:{name}", inputs, call.span, call=call)


def _text_method(machine: Machine, owner: Fact, name: str, call: Call) -> Fact:
    if name == "join" and call.args:
        members = sequence(call.args[0].value) if call.args[0].known else None
        if members is not None:
            return combine(lambda sep, *parts: _joined(sep, parts), (owner, *members), call.span, "join")
    if name == "format":
        names = list(call.kwargs)
        facts = (owner, *call.args, *call.kwargs.values())
        count = len(call.args)

        def fill(form: Any, *values: Any) -> str:
            if not all(constant(v) for v in values) or any(c.isdigit() and len(form) > 200 for c in form):
                raise Unknowable("text made from an object")
            try:
                return str(form.format(*values[:count], **dict(zip(names, values[count:], strict=True))))[:MAX_TEXT]
            except (IndexError, KeyError, ValueError, AttributeError, TypeError) as error:
                raise Unknowable(f"the formatting fails: {error}") from None

        return combine(fill, facts, call.span, "format")
    if name in _TEXT_METHODS:
        keywords, count = list(call.kwargs), len(call.args)

        def apply(text: Any, *args: Any) -> Any:
            if name in {"startswith", "endswith"}:
                args = tuple(tuple(f.value for f in a.items) if isinstance(a, Array) and not a.open else a for a in args)
            elif not all(constant(a) for a in args):
                raise Unknowable("text made from something that is not known")
            if len(text) > MAX_TEXT:
                raise Unknowable("text made from something that is not known")
            try:
                result = getattr(text, name)(*args[:count], **dict(zip(keywords, args[count:], strict=True)))
            except (TypeError, ValueError) as error:
                raise Unknowable(f"the text method fails: {error}") from None
            return as_value(result, call)

        return combine(apply, (owner, *call.args, *call.kwargs.values()), call.span, name)
    if name in {"read_text", "open"}:
        opened = fixed(Instance(Symbol("builtins.open"), call, {".path": owner}), call.span)
        return text_of(machine, owner, call.span) if name == "read_text" else opened
    if name in {"with_suffix", "with_name", "with_stem"} and len(call.args) == 1:
        return combine(lambda path, part: _path_with(name, path, part), (owner, call.args[0]), call.span, name)
    if name in {"resolve", "absolute", "expanduser", "as_posix", "__str__"}:
        return owner
    return opaque(f"the result of `.{name}()` is not known", f"call:{name}", (owner, *call.args), call.span, call=call)


def _path_with(name: str, path: Any, part: Any) -> str:
    """`Path.with_suffix` and its like."""
    if not isinstance(part, str):
        raise Unknowable("a path that is not known")
    folder, _, last = posix(path).rpartition("/")
    stem, suffix = splitext(last)
    made = {"with_suffix": stem + part, "with_name": part, "with_stem": part + suffix}[name]
    return f"{folder}/{made}" if folder else made


def _joined(separator: Any, parts: tuple[Any, ...]) -> str:
    if not isinstance(separator, str) or not all(isinstance(p, str) for p in parts):
        raise Unknowable("text made from an object")
    return separator.join(parts)[:MAX_TEXT]


def _table_method(machine: Machine, table: Table, name: str, call: Call) -> Fact | None:
    first = call.args[0] if call.args else None
    if name in {"get", "pop", "setdefault"} and first is not None:
        if not first.known or not (constant(first.value) or isinstance(first.value, Symbol)):
            return None
        found = table.slots.get(first.value)
        otherwise = call.argument("default", 1) or fixed(None, call.span)
        if found is None and table.open:
            return opaque(table.open, "item", (fixed(table), first), call.span)
        if name == "setdefault" and found is None:
            machine.write(table, first.value, otherwise)
        if name == "pop":
            machine.erase(table, first.value)
        return linked(found, call.span, "looked up here") if found is not None else otherwise
    if name == "update":
        _update(machine, table, call)
        return fixed(None, call.span)
    if name == "copy":
        return fixed(Table(dict(table.slots)), call.span)
    if name == "clear":
        for key in list(table.slots):
            machine.erase(table, key)
        return fixed(None, call.span)
    if name in {"keys", "values", "items"}:
        rows = list(table.entries())
        if name == "keys":
            members = [fixed(k) for k, _ in rows]
        elif name == "values":
            members = [v for _, v in rows]
        else:
            members = [fixed(Array((fixed(k), v), "tuple")) for k, v in rows]
        return fixed(Array(members, "list", table.open), call.span)
    return None


def _update(machine: Machine, table: Table, call: Call) -> None:
    slots: dict[Any, Any] = {}
    for argument in call.args[:1]:
        if isinstance(argument.value, Instance):
            slots.update(attributes_of(argument.value))
        else:
            merge_table(slots, argument)
    slots.update(call.kwargs)
    if call.open:
        slots[REST] = call.open
    for key, fact in slots.items():
        machine.write(table, key, fact)


def _array_method(machine: Machine, array: Array, name: str, call: Call) -> Fact | None:
    first = call.args[0] if call.args else None
    if name in {"append", "add", "extend", "update", "insert"} and any(
        loop.once and array.born < loop.born for loop in machine.loops
    ):
        machine.write(array, REST, "it grows in a loop")
        machine.write(array, ".when", machine.conditions_of_round())
    if name in {"append", "add"} and first is not None:
        machine.write(array, "items", (*array.items, first))
        return fixed(None, call.span)
    if name in {"extend", "update"} and first is not None:
        members = sequence(first.value) if first.known else None
        if members is None:
            machine.write(array, REST, first.reason or "extended with something that is not known")
        else:
            machine.write(array, "items", (*array.items, *members))
        return fixed(None, call.span)
    if name == "insert" and len(call.args) == 2:
        machine.write(array, "items", (call.args[1], *array.items))
        return fixed(None, call.span)
    if name in {"remove", "discard"} and first is not None and first.known:
        kept = tuple(f for f in array.items if not (f.known and constant(f.value) and f.value == first.value))
        machine.write(array, "items", kept)
        return fixed(None, call.span)
    if name == "pop" and array.items and not array.open:
        index = first.value if first is not None and isinstance(first.value, int) else -1
        if -len(array.items) <= index < len(array.items):
            items = list(array.items)
            popped = items.pop(index)
            machine.write(array, "items", tuple(items))
            return popped
    if name == "copy":
        return fixed(Array(array.items, array.kind, array.open), call.span)
    if name == "index" and first is not None and first.known and not array.open:
        for position, fact in enumerate(array.items):
            if fact.known and constant(fact.value) and fact.value == first.value:
                return fixed(position, call.span)
    return None
