"""The names of an expression, looked up in one assessment."""

from __future__ import annotations

from collections.abc import Iterable

from memlint.assess import Assessment
from memlint.facts import Problem, Status
from memlint.rules.catalogue import claimed_problems
from memlint.rules.terms import PROBLEM_MESSAGE, TERMS
from memlint.typed import Any

ANY_OTHER = "*"
"""`problem("*")`: a problem that no page of memlint names."""


class Facts:
    """The scope of one assessment (see `expression.Scope`). `message` is the problem a finding is being written for."""

    def __init__(self, assessment: Assessment, message: str = "", terms: dict[str, Any] | None = None) -> None:
        self.assessment = assessment
        self.message = message
        self._terms: dict[str, Any] = {} if terms is None else terms
        """Terms looked up before: some are found by a search over many estimates."""

    def values(self, name: str) -> tuple[Any, ...]:
        """Every value a fact or term may have; empty when unknown or not applicable (no card, no estimate)."""
        if name not in TERMS:
            return self.assessment.run.fact(name).values
        if name == PROBLEM_MESSAGE:
            return (self.message,) if self.message else ()
        if name not in self._terms:
            self._terms[name] = TERMS[name].read(self.assessment)
        value = self._terms[name]
        return () if value is None else (value,)

    def about(self, problem: Problem) -> Facts:
        """The same scope for a finding about one problem."""
        return Facts(self.assessment, problem.message, self._terms)

    def known(self, name: str) -> bool:
        """True when there is exactly one value."""
        return len(self.values(name)) == 1

    def absent(self, name: str) -> bool:
        """True when nothing speaks of the fact."""
        return name not in self.assessment.run.facts

    def explicit(self, name: str) -> bool:
        """True when the input states the fact's value or its choices: in a place of its own, be it as a parser's default."""
        fact = self.assessment.run.fact(name)
        stated = fact.status is Status.DEFAULT and any(origin.span is not None for origin in fact.origin)
        return stated or fact.status in (Status.FIXED, Status.CHOICES)

    def problem(self, name: str) -> bool:
        """True when the reader reported this problem."""
        return bool(problems_of(self.assessment, (name,)))


def problems_of(assessment: Assessment, names: Iterable[str]) -> list[Problem]:
    """The problems of a run that go by one of these names."""
    wanted = set(names)
    return [
        problem
        for problem in assessment.run.problems
        if problem.name in wanted or (ANY_OTHER in wanted and problem.name not in claimed_problems())
    ]
