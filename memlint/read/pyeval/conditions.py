"""The truth of an expression as a fact."""

from __future__ import annotations

import ast

from memlint.facts import Fact, Status
from memlint.read.pyeval.joins import combine
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.operators import truth
from memlint.source import Span


def condition(machine: Machine, node: ast.expr) -> Fact:
    """The truth of an expression: a bool, choices of bools, or unknown."""
    return truth_of(machine, machine.evaluate(node), machine.span(node))


def truth_of(machine: Machine, fact: Fact, span: Span) -> Fact:
    """The truth of a value as a fact."""
    if fact.status is Status.UNKNOWN:
        return fact
    if fact.known and isinstance(fact.value, bool):
        return fact
    return combine(truth, (fact,), span, "truth")
