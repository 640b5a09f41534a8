"""What memlint understood: `memlint facts`, and the `facts` part of estimates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memlint.facts import Fact, Origin, Status, TrainingRun
from memlint.report.excerpt import error_line, place
from memlint.report.json import dump
from memlint.report.style import Style
from memlint.report.text import plain
from memlint.source import ReadError
from memlint.typed import Any

STATUS_COLOURS = {Status.FIXED: "32", Status.DEFAULT: "36", Status.CHOICES: "33", Status.UNKNOWN: "31"}


def render_json(runs: Iterable[TrainingRun], errors: Iterable[ReadError]) -> str:
    """`memlint.facts.v1`."""
    document = {
        "schema": "memlint.facts.v1",
        "runs": [{"path": run.path, "line": run.span.line, "dialect": run.dialect, "facts": facts_object(run)} for run in runs],
        "errors": [{"path": error.path, "line": error.line, "message": error.message} for error in errors],
    }
    return dump(document)


def facts_object(run: TrainingRun) -> dict[str, Any]:
    """Every fact of a run by its key, sorted."""
    return {key: fact_object(run.facts[key]) for key in sorted(run.facts)}


def fact_object(fact: Fact) -> dict[str, Any]:
    """One fact; `choices` and `reason` only where they say something."""
    found: dict[str, Any] = {"value": fact.value, "status": fact.status.value}
    if fact.status is Status.CHOICES:
        found["choices"] = list(fact.choices)
    if fact.reason:
        found["reason"] = fact.reason
    found["origin"] = [_origin_object(origin) for origin in fact.origin]
    return found


def _origin_object(origin: Origin) -> dict[str, Any]:
    span = origin.span
    if span is None:
        return {"path": None, "line": None, "column": None, "note": origin.note}
    found: dict[str, Any] = {"path": span.path, "line": span.line, "column": span.column, "note": origin.note}
    return {**found, "cell": span.cell} if span.cell else found


def render_full(
    runs: Sequence[TrainingRun], errors: Iterable[ReadError], versions: Iterable[tuple[str, str, str]], style: Style
) -> str:
    """A table per run; `versions` are (library, version, where it is stated) in force."""
    blocks = [_run(run, style) for run in runs]
    if not runs:
        blocks.append("no training run found")
    stated = [f"  {library} {version}  {style.dim(plain(origin))}" for library, version, origin in versions]
    if stated and runs:
        blocks.append("\n".join([style.bold("versions whose defaults apply"), *stated]))
    blocks += [error_line(error, style) for error in errors]
    return "\n\n".join(blocks) + "\n"


def _run(run: TrainingRun, style: Style) -> str:
    lines = [style.bold(place(run.span))]
    if run.dialect:
        why = f": {plain(run.recognised_by)}" if run.recognised_by else ""
        lines.append(f"  read as {plain(str(run.value('framework.name', run.dialect)))}{why}")
    others = [file for file in run.files if file != run.path]
    if others:
        lines.append(f"  together with {', '.join(plain(file) for file in others)}")
    keys = sorted(run.facts)
    widest = max((len(key) for key in keys), default=0)
    values = {key: shown(run.facts[key]) for key in keys}
    column = min(max((len(value) for value in values.values()), default=0), 32)
    for key in keys:
        fact = run.facts[key]
        status = style.paint(f"{fact.status.value:<8}", STATUS_COLOURS[fact.status])
        lines.append(f"  {key:<{widest}}  {values[key]:<{column}}  {status} {style.dim(origin_words(fact))}".rstrip())
    return "\n".join(lines)


def shown(fact: Fact) -> str:
    """A fact's value for people: `a or b` for choices, `?` for unknown."""
    if fact.status is Status.UNKNOWN:
        return "?"
    return " or ".join(_value(value) for value in fact.values)


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return plain(", ".join(_value(item) for item in value))
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    text = plain(str(value))
    return text if len(text) <= 120 else text[:117] + "..."


def origin_words(fact: Fact) -> str:
    """Where a value comes from: the chain of places and notes, then the reason why it is not known."""
    links = []
    for origin in fact.origin:
        where = place(origin.span) if origin.span else ""
        links.append(" ".join(filter(None, (where, plain(origin.note)))))
    words = " < ".join(filter(None, links))
    if fact.decided_by:
        words = f"{words} (decided by {plain(fact.decided_by)})".strip()
    return "; ".join(filter(None, (plain(fact.reason), words)))
