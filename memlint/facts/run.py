"""A training run: the facts of one job, and the places in files where a fix may write them."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.facts.fact import Fact, fixed, unknown
from memlint.source import ReadError, Span
from memlint.typed import Any, NamedTuple


class Site(NamedTuple):
    """A place where settings of a dialect are written: a YAML or JSON mapping, a Python call, a launch line.

    `dialect` names the module whose table translates canonical keys to native ones; `kind` is yaml, json, toml, python or shell;
    `pointer` is the dotted path of the mapping inside its document ("" = the root); `span` covers the mapping, the
    call expression (python) or the command (shell).
    """

    dialect: str
    kind: str
    span: Span
    pointer: str = ""


class Problem(NamedTuple):
    """Something in the input that the framework itself would reject or ignore; rules turn it into a finding.

    `name` is kebab-case and stable (`fp16-and-bf16-both`, `unknown-key`), `message` is for a person.
    """

    name: str
    message: str
    span: Span
    related: tuple[Span, ...] = ()


class TrainingRun(NamedTuple):
    """One training job. Keys of `facts` are the canonical keys of `memlint.facts.keys`."""

    path: str
    span: Span
    facts: Mapping[str, Fact]
    dialect: str = ""
    recognised_by: str = ""
    sites: tuple[Site, ...] = ()
    problems: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()
    """Every file that contributed, in the order read."""

    def fact(self, key: str) -> Fact:
        """The fact under a canonical key; unknown when nothing says anything about it."""
        return self.facts.get(key) or unknown(f"nothing says {key}")

    def value(self, key: str, otherwise: Any = None) -> Any:
        """The single value under a key, or `otherwise` when it is not known."""
        fact = self.facts.get(key)
        return fact.value if fact is not None and fact.known else otherwise

    def with_facts(self, facts: Mapping[str, Fact]) -> TrainingRun:
        """The same run with some facts replaced."""
        return self._replace(facts={**self.facts, **facts})

    def with_values(self, values: Mapping[str, Any], note: str) -> TrainingRun:
        """The same run with some values fixed (a `--set`, a proposed fix)."""
        return self.with_facts({key: fixed(value, note=note) for key, value in values.items()})


class Extraction(NamedTuple):
    """What one input yields: its runs in source order, and what could not be read."""

    runs: tuple[TrainingRun, ...] = ()
    errors: tuple[ReadError, ...] = ()
