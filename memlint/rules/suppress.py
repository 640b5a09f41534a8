"""Comments that silence findings.

    per_device_train_batch_size=8,  # memlint: ignore[MEM003] a reason
    # memlint: ignore[checkpointing-off]
    # memlint: file-ignore[MEM010, MEM020]

The first speaks for its line; the second, alone on its line, for the whole next statement, argument or key; the third
for the file.

A finding is silenced by a comment that covers any of its places. A comment that silences nothing is itself a finding
(MEM200), and so is one that names no rule or an unknown one (MEM201).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from memlint.assess import Assessment
from memlint.comments import Comment, code_cells, comments_of
from memlint.rules.catalogue import close_to, find_rule
from memlint.rules.engine import decide
from memlint.rules.expression import UNKNOWN
from memlint.rules.finding import Confidence, Finding, Fix, Read, Safety, Severity
from memlint.rules.rule import Rule
from memlint.source import Kind, Source, Span
from memlint.typed import NamedTuple

UNUSED, INVALID = "MEM200", "MEM201"
_DIRECTIVE = r"(file-ignore|ignore)\s*\[([^\]]*)\]\s*(.*)$"
_SETTING = r"(set\s|gpus?\s*=)"


class Suppression(NamedTuple):
    """One rule silenced on lines `first` to `last` of a file (or cell)."""

    code: str
    path: str
    cell: int
    first: int
    last: int
    reason: str
    comment: Comment
    alone: bool
    """True when the comment names no other rule, so that the whole comment may go."""

    def covers(self, finding: Finding) -> bool:
        """True when it names the finding's rule and touches one of its places."""
        return finding.code == self.code and any(
            span.path == self.path
            and span.cell == self.cell
            and span.line <= self.last
            and max(span.line, span.end_line) >= self.first
            for span in finding.spans
        )


class Outcome(NamedTuple):
    """Findings that count, and those that a comment silenced (with its reason)."""

    findings: tuple[Finding, ...]
    suppressed: tuple[Finding, ...]


def apply(
    findings: Iterable[Finding],
    paths: Iterable[str],
    read: Read,
    rules: Sequence[Rule],
    selected: Sequence[Rule],
    assessments: Sequence[Assessment] = (),
) -> Outcome:
    """Silence findings by the comments of the linted `paths` and of every file a finding points into.

    `rules` are all rules (their names are known words), `selected` those that were run. A suppression counts as
    unused only in a linted file with a training run, for a rule that was run there and could be decided.
    """
    findings, linted = list(findings), list(dict.fromkeys(paths))
    suppressions: list[Suppression] = []
    kept: list[Finding] = []
    for path in dict.fromkeys((*linted, *(span.path for finding in findings for span in finding.spans))):
        source = read(path)
        if source is not None:
            found, invalid = suppressions_of(source, rules)
            suppressions += found
            kept += invalid if path in linted and _runs(INVALID, selected) else ()
    suppressed: list[Finding] = []
    used: set[int] = set()
    for finding in findings:
        covering = [number for number, suppression in enumerate(suppressions) if suppression.covers(finding)]
        used.update(covering)
        if covering:
            suppressed.append(finding._replace(reason=suppressions[covering[0]].reason))
        else:
            kept.append(finding)
    if _runs(UNUSED, selected):
        idle = [s for number, s in enumerate(suppressions) if number not in used and s.path in linted]
        kept += [_unused(s) for s in idle if _decided(s, selected, assessments)]
    return Outcome(tuple(sorted(kept, key=lambda f: (f.span, f.code))), tuple(suppressed))


def suppressions_of(source: Source, rules: Sequence[Rule]) -> tuple[list[Suppression], list[Finding]]:
    """The suppressions a file's comments state, and findings for the comments that cannot be understood."""
    found: list[Suppression] = []
    invalid: list[Finding] = []
    cells: Mapping[int, str] = dict(code_cells(source.text)) if source.kind is Kind.NOTEBOOK else {}
    for comment in comments_of(source):
        match = re.match(_DIRECTIVE, comment.text)
        if match is None:
            if not re.match(_SETTING, comment.text):
                invalid.append(_invalid(source, comment, _complaint(comment.text)))
            continue
        verb, names, reason = match.groups()
        text = cells.get(comment.cell, "") if comment.cell else source.text
        kind = Kind.PYTHON if comment.cell else source.kind
        first, last = (1, 10**9) if verb == "file-ignore" else _covered(comment, text, kind)
        named = [name.strip() for name in names.split(",") if name.strip()]
        for name in named:
            rule = find_rule(rules, name)
            if rule is None:
                invalid.append(_invalid(source, comment, f"{name!r} is not a rule{close_to(name, rules)}"))
            else:
                found.append(
                    Suppression(rule.code, source.path, comment.cell, first, last, reason.strip(), comment, len(named) == 1)
                )
        if not named:
            invalid.append(_invalid(source, comment, "name the rules to ignore: ignore[MEM010]"))
    return found, invalid


def _runs(code: str, selected: Sequence[Rule]) -> bool:
    return any(rule.code == code for rule in selected)


def _decided(suppression: Suppression, selected: Sequence[Rule], assessments: Sequence[Assessment]) -> bool:
    """True when the rule was run on this file and its condition was plainly false: only then is a comment useless."""
    rule = next((rule for rule in selected if rule.code == suppression.code), None)
    about = [a for a in assessments if suppression.path in (a.run.path, a.run.span.path, *a.run.files)]
    return rule is not None and bool(about) and all(decide(a, rule) is not UNKNOWN for a in about)


def _unused(suppression: Suppression) -> Finding:
    span = _span(suppression.path, suppression.comment)
    title = f"Remove the unused suppression of {suppression.code}"
    fixes = (Fix(title, {}, Safety.SAFE, removes=span),) if suppression.alone else ()
    message = f"{suppression.code} finds nothing here: this suppression does nothing"
    return _own(UNUSED, "unused-suppression", message, span, suppression.code, fixes)


def _invalid(source: Source, comment: Comment, message: str) -> Finding:
    return _own(INVALID, "invalid-memlint-comment", message, _span(source.path, comment), comment.text)


def _own(code: str, name: str, message: str, span: Span, logical: str, fixes: tuple[Fix, ...] = ()) -> Finding:
    return Finding(code, name, Severity.WARNING, Confidence.PROVED, message, span, fixes=fixes, logical=logical)


def _span(path: str, comment: Comment) -> Span:
    return Span(path, comment.line, comment.column, comment.line, comment.end_column, comment.cell)


def _complaint(text: str) -> str:
    if re.match(r"(file-)?ignore\b", text):
        return "name the rules to ignore: ignore[MEM010]"
    verb = re.split(r"[\s=\[]", text, maxsplit=1)[0]
    return f"memlint does not know {verb!r}; it knows ignore[...], file-ignore[...], set key=value, gpu=..., gpus=..."


# What a comment covers


def _covered(comment: Comment, text: str, kind: Kind) -> tuple[int, int]:
    """The lines a comment speaks for: its own, or, alone on its line, the whole next statement, argument or key."""
    if not comment.alone:
        return comment.line, comment.line
    lines = re.split(r"\r\n|\n|\r", text)
    first = next((n for n in range(comment.line + 1, len(lines) + 1) if _says_something(lines[n - 1], kind)), None)
    if first is None:
        return comment.line, comment.line
    if kind is Kind.PYTHON:
        last = _end_of_python_node(text, comment.line, first)
    elif kind is Kind.SHELL:
        last = _end_of_command(lines, first)
    else:
        last = _end_of_block(lines, first)
    return comment.line, last


def _says_something(line: str, kind: Kind) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith(("#", "//") if kind is Kind.JSON else "#")


def _end_of_python_node(text: str, after: int, first: int) -> int:
    """The last line of the outermost statement, argument or dict entry that starts on line `first`."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return first
    return max((end for start, end in _nodes(tree) if start == first > after), default=first)


def _nodes(tree: ast.AST) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr, ast.keyword)):
            decorators = getattr(node, "decorator_list", [])
            yield min((d.lineno for d in decorators), default=node.lineno), node.end_lineno or node.lineno


def _end_of_command(lines: Sequence[str], first: int) -> int:
    """The last line of a shell command with its continuations."""
    last = first
    while last < len(lines) and lines[last - 1].rstrip().endswith("\\"):
        last += 1
    return last


def _end_of_block(lines: Sequence[str], first: int) -> int:
    """The last line of a YAML or JSON entry: what is indented deeper, its list items, its closing bracket."""
    indent = _indent(lines[first - 1])
    is_item = lines[first - 1].lstrip().startswith("- ")
    last = first
    for number in range(first + 1, len(lines) + 1):
        line = lines[number - 1]
        if not line.strip():
            continue
        deeper = _indent(line) > indent
        its_item = not is_item and _indent(line) == indent and line.lstrip().startswith(("- ", "]", "}"))
        if not (deeper or its_item):
            break
        last = number
    return last


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
