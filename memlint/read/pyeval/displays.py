"""Lists, tuples, sets and dicts as they are written, and comprehensions."""

from __future__ import annotations

import ast

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.access import MAX_MEMBERS, hashable, iterate
from memlint.read.pyeval.conditions import condition
from memlint.read.pyeval.joins import merge, merge_table, opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.sequences import sequence
from memlint.read.pyeval.values import ABSENT, REST, Array, Scope, Table

MAX_DISPLAY = 2_000
"""Longest list or dict display whose members are evaluated."""


def display(machine: Machine, node: ast.List | ast.Tuple | ast.Set) -> Fact:
    """`[...]`, `(...)` and `{...}`; past `MAX_DISPLAY` members only its kind is known."""
    kind = {ast.List: "list", ast.Tuple: "tuple", ast.Set: "set"}[type(node)]
    span = machine.span(node)
    if len(node.elts) > MAX_DISPLAY:
        return fixed(Array((), kind, f"a {kind} of {len(node.elts):,} members is not read"), span)
    items: list[Fact] = []
    open_ = ""
    for element in node.elts:
        if isinstance(element, ast.Starred):
            value = machine.evaluate(element.value)
            members = iterate(machine, value.value) if value.known else None
            items.extend(members or ())
            open_ = open_ if members is not None else value.reason or "unpacks something that is not known"
        else:
            items.append(machine.evaluate(element))
    return fixed(Array(items, kind, open_), span)


def dict_display(machine: Machine, node: ast.Dict) -> Fact:
    """`{key: value, **more}`; an entry under an unknown key leaves the table open."""
    span = machine.span(node)
    if len(node.keys) > MAX_DISPLAY:
        return fixed(Table({REST: f"a dict of {len(node.keys):,} entries is not read"}), span)
    table = Table()
    for key, value in zip(node.keys, node.values, strict=True):
        fact = machine.evaluate(value)
        if key is None:
            merge_table(table.slots, fact)
            continue
        index = machine.evaluate(key)
        if index.known and hashable(index.value):
            table.slots[index.value] = fact
        elif index.status is Status.CHOICES and all(hashable(name) for name in index.choices):
            for name in index.choices:  # `{"dtype" if new else "torch_dtype": x}`
                table.slots[name] = merge([fact, table.slots.get(name, fixed(ABSENT))], index.decided_by)
        else:
            table.slots[REST] = index.reason or "a key that is not known"
    return fixed(table, span)


def _perhaps(value: Fact) -> Fact:
    """An entry that is there or not: `{k: v for k, v in given.items() if v is not None}`."""
    return value if value.status is Status.UNKNOWN else merge([value, fixed(ABSENT)])


def comprehension(machine: Machine, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Fact:
    """A comprehension, walked as the loop that it is; a generator counts as the list of its results."""
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
                results.append((machine.evaluate(node.key), machine.evaluate(node.value)))
            else:
                results.append((None, machine.evaluate(node.elt)))
            return
        generator = node.generators[index]
        iterable = machine.evaluate(generator.iter)
        sources.append(iterable)
        items = (sequence(iterable.value) or iterate(machine, iterable.value)) if iterable.known else None
        if items is None or len(items) > MAX_MEMBERS or len(results) > MAX_DISPLAY:
            complete = False
            items = [opaque("an element of a loop", "element", (iterable,), span)]
        for item in items:
            machine.semantics.assign(machine, generator.target, item)
            tests = [condition(machine, test) for test in generator.ifs]
            if any(t.known and not t.value for t in tests):
                continue
            open_tests = [t for t in tests if not t.known]
            if open_tests and not (isinstance(node, ast.DictComp) and index == len(node.generators) - 1):
                complete = False
            walk(index + 1)
            if open_tests and complete:
                key, value = results.pop()
                results.append((key, _perhaps(value)))

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
            if key is not None and key.known and hashable(key.value):
                table.slots[key.value] = value
            else:
                table.slots[REST] = "a key that is not known"
        return fixed(table, span)
    return fixed(Array((value for _, value in results), "set" if isinstance(node, ast.SetComp) else "list"), span)
