"""Where a canonical change is written: the place that states the value now, else the first site that can express it.

Every way of writing a change is a candidate, in order of preference; `verify` decides which of them holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memlint.dialects import by_name
from memlint.facts import Fact, Site, TrainingRun
from memlint.fixes.edit import Edit, apply
from memlint.project import Project
from memlint.source import Kind, ReadError, Source, Span
from memlint.typed import Any, Protocol

KINDS = {"yaml": Kind.YAML, "json": Kind.JSON, "toml": Kind.TOML, "python": Kind.PYTHON, "shell": Kind.SHELL}

STATEMENTS = {("checkpointing.enabled", True): "gradient_checkpointing_enable"}
"""Changes that a loaded model makes by a method without arguments (`transformers.PreTrainedModel`)."""


def candidates(run: TrainingRun, key: str, value: Any, project: Project) -> Iterator[Source]:
    """The ways to write one change, each as the changed file; none twice."""
    seen: set[Source] = set()
    for source in _ways(run, key, value, project):
        if source not in seen:
            seen.add(source)
            yield source


def _ways(run: TrainingRun, key: str, value: Any, project: Project) -> Iterator[Source]:
    place = _place(run.facts.get(key))
    if place is None:
        for site in run.sites:
            yield from _at_site(site, key, value, project)
        yield from _as_statement(run, key, value, project)
        return
    for site in sorted((s for s in run.sites if _holds(s, place)), key=lambda s: _size(s.span)):
        for native in _single(site, key, value):
            yield from _at_place(place, native, project)
        yield from _at_site(site, key, value, project, place)
    words = [native for site in run.sites for native in _single(site, key, value)]
    if isinstance(value, int):  # a number or a switch is itself in every dialect, and in none
        words.append(value)
    for native in words:
        yield from _at_place(place, native, project)


def _native(site: Site, key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """Native keys and values that say it in a site's dialect, each a way of its own; none where it has no words for it."""
    try:
        dialect = by_name(site.dialect)
    except LookupError:
        return []
    ways = [dialect.write(key, value)] if hasattr(dialect, "write") else []
    if hasattr(dialect, "alternatives"):
        ways += dialect.alternatives(key, value)
    return [pairs for pairs in ways if pairs]


def _single(site: Site, key: str, value: Any) -> list[Any]:
    """The native values of the ways in which one native key says it all."""
    return [pairs[0][1] for pairs in _native(site, key, value) if len(pairs) == 1]


def _place(fact: Fact | None) -> Span | None:
    """The place that sets a value, where a fix would write; None for a library's default."""
    return fact.origin[0].span if fact is not None and fact.origin else None


def _at_place(place: Span, native: Any, project: Project) -> Iterator[Source]:
    """The literal at a place (a constant, a parser's default, a flag) replaced by a value of the same type."""
    source = _source(place, project)
    writer = _writer(source.kind) if source else None
    if source is None or writer is None:
        return
    edits = writer.set_value(source, place, native)
    if edits:
        yield Source(source.path, source.kind, apply(source.text, edits))


def _at_site(site: Site, key: str, value: Any, project: Project, place: Span | None = None) -> Iterator[Source]:
    """The native keys set at a site: first without those that only switch off what is not there, then all of them."""
    source = _source(site.span, project)
    writer = _writer(source.kind) if source else None
    if source is None or writer is None or KINDS.get(site.kind) is not source.kind:
        return
    for pairs in _native(site, key, value):
        needed = [pair for pair in pairs if pair[1] not in (False, None, "none") or writer.states(source, site, pair[0])]
        for chosen in (needed, pairs) if 0 < len(needed) < len(pairs) else (pairs,):
            edits = writer.set_keys(source, site, dict(chosen), place)
            if edits:
                yield Source(source.path, source.kind, apply(source.text, edits))


def _as_statement(run: TrainingRun, key: str, value: Any, project: Project) -> Iterator[Source]:
    """A method of the model called right after it is loaded: the way of loops that have no arguments to set."""
    method = STATEMENTS.get((key, value)) if isinstance(value, bool) else None
    for site in run.sites:
        source = _source(site.span, project)
        if method is None or site.dialect != "from_pretrained" or source is None or source.kind is not Kind.PYTHON:
            continue
        from memlint.fixes import python_writer

        edits = python_writer.call_method(source, site.span, method)
        if edits:
            yield Source(source.path, source.kind, apply(source.text, edits))


class Writer(Protocol):
    """What every writer module offers. Its edits are already proved on the syntax of its kind of document."""

    def set_value(self, source: Source, place: Span, value: Any) -> tuple[Edit, ...] | None:
        """Replace what is written at a place; empty when it says so already, None when impossible."""

    def set_keys(
        self, source: Source, site: Site, values: Mapping[str, Any], place: Span | None = None
    ) -> tuple[Edit, ...] | None:
        """Give native keys of a site their values; `place` is what states the value so far."""

    def states(self, source: Source, site: Site, name: str) -> bool:
        """Whether a site states a native key itself."""


def _writer(kind: Kind) -> Writer | None:
    """The writer of a kind of document, loaded when a fix needs it."""
    if kind is Kind.YAML:
        from memlint.fixes import yaml_writer

        return yaml_writer
    if kind is Kind.JSON:
        from memlint.fixes import json_writer

        return json_writer
    if kind is Kind.TOML:
        from memlint.fixes import toml_writer

        return toml_writer
    if kind is Kind.PYTHON:
        from memlint.fixes import python_writer

        return python_writer
    if kind is Kind.SHELL:
        from memlint.fixes import shell_writer

        return shell_writer
    return None


def _source(span: Span, project: Project) -> Source | None:
    """The text behind a span; None for a notebook cell, whose text is inside JSON."""
    if span.cell:
        return None
    try:
        return project.read(span.path)
    except ReadError:
        return None


def _holds(site: Site, place: Span) -> bool:
    """Whether a place lies inside a site."""
    span = site.span
    start, end = (span.line, span.column), (span.end_line or span.line, span.end_column or 1_000_000)
    return span.path == place.path and span.cell == place.cell and start <= (place.line, place.column) <= end


def _size(span: Span) -> tuple[int, int]:
    return (span.end_line - span.line, span.end_column - span.column)
