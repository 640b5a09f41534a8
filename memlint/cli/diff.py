"""`memlint diff BASE [HEAD]`: how a change moves the memory of each run, as Markdown for a pull request.

Nothing is checked out: a revision is the working tree with the files that differ from it replaced by their text there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memlint.assess import Assessment
from memlint.cli.arguments import Parser
from memlint.cli.options import add_settings, configs, over_settings
from memlint.cli.session import Session, gather, git
from memlint.report.breakdown import verdict_words
from memlint.report.style import Style
from memlint.report.text import code, markdown, size
from memlint.source import ReadError, Source, decode, kind_of


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The texts in which a revision differs from the working tree; `absent` files do not exist in it."""

    texts: dict[str, Source]
    absent: frozenset[str]


def run(arguments: Sequence[str]) -> int:
    """Print the table; 0 whatever the change does (`memlint check` judges)."""
    parser = Parser("diff", "How a change moves the memory of each training run, as Markdown.")
    parser.add_argument("base", metavar="BASE", help="the git revision to compare with")
    parser.add_argument("head", nargs="?", metavar="HEAD", help="the revision that holds the change (default: the working tree)")
    add_settings(parser)
    options = parser.parse_args(arguments)
    root = Path(git("rev-parse", "--show-toplevel").strip())
    changed = _names(git("diff", "--name-only", "-z", options.base, *([options.head] if options.head else []), "--"))
    before = _snapshot(options.base, root)
    after = _snapshot(options.head, root) if options.head else Snapshot({}, frozenset())
    touched = {_shown(root / name) for name in changed}
    old = _assessed(before, touched, Session(configs(options), over_settings(options), before.texts), root)
    new = _assessed(after, touched, Session(configs(options), over_settings(options), after.texts), root)
    sys.stdout.write(_table(old, new))
    return 0


def _names(text: str) -> list[str]:
    return [name for name in text.split("\0") if name]


def _shown(path: Path) -> str:
    """A path as findings print it: relative to where we are, when it lies below."""
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.as_posix()


def _snapshot(revision: str, root: Path) -> Snapshot:
    texts: dict[str, Source] = {}
    absent: set[str] = set()
    status = _names(git("-C", str(root), "diff", "--name-status", "--no-renames", "-z", revision, "--"))
    for kind, name in zip(status[::2], status[1::2], strict=True):
        path = _shown(root / name)
        file_kind = kind_of(name)
        if kind == "A":
            absent.add(path)
        elif file_kind is not None:
            try:
                text = decode(
                    git("-C", str(root), "show", f"{revision}:{name}").encode("utf-8", "surrogateescape"),
                    path,
                    file_kind,
                )
            except ReadError:
                continue
            texts[path] = Source(path, file_kind, text)
    return Snapshot(texts, frozenset(absent))


def _assessed(snapshot: Snapshot, touched: set[str], session: Session, root: Path) -> dict[tuple[str, int], Assessment]:
    """The runs that the change touches, by path and ordinal within it."""
    found: dict[tuple[str, int], Assessment] = {}
    walked = gather([_shown(root)], session).files
    for path in dict.fromkeys((*walked, *(p for p in snapshot.texts if p in touched))):
        if path in snapshot.absent:
            continue
        read = session.read(path)
        if not any(touched & {run.path, *run.files} for run in read.runs):
            continue
        for ordinal, assessment in enumerate(session.assess(read)[0]):
            found[path, ordinal] = assessment
    return found


def _table(old: dict[tuple[str, int], Assessment], new: dict[tuple[str, int], Assessment]) -> str:
    keys = sorted({*old, *new})
    if not keys:
        return "No training run is touched by this change.\n"
    several = {path for path, ordinal in keys if ordinal}
    lines = ["### GPU memory of the runs this change touches", ""]
    lines += ["| Run | Before | After | Change | Verdict |", "|---|---:|---:|---:|---|"]
    for path, ordinal in keys:
        a, b = old.get((path, ordinal)), new.get((path, ordinal))
        name = f"{path} (run {ordinal + 1})" if path in several else path
        lines.append(f"| {code(name)} | {_amount(a)} | {_amount(b)} | {_change(a, b)} | {_verdict(a, b)} |")
    lines += _reasons([a for a in new.values() if a.why_not])
    return "\n".join(lines) + "\n"


def _expected(assessment: Assessment | None) -> int | None:
    amount = assessment.needed if assessment else None
    return amount.expected if amount else None


def _amount(assessment: Assessment | None) -> str:
    if assessment is None:
        return "none"
    expected = _expected(assessment)
    return size(expected) if expected is not None else "unknown"


def _change(before: Assessment | None, after: Assessment | None) -> str:
    a, b = _expected(before), _expected(after)
    if before is None or after is None:
        return "new" if before is None else "removed"
    if a is None or b is None:
        return "unknown"
    return "none" if a == b else f"{'+' if b > a else '−'}{size(abs(b - a))}"


def _verdict(before: Assessment | None, after: Assessment | None) -> str:
    """The verdict after, with the one before when it was another."""
    said = [_on_card(assessment) for assessment in (before, after) if assessment is not None]
    return " → ".join(dict.fromkeys(filter(None, said)))


def _on_card(assessment: Assessment) -> str:
    if assessment.gpu is None:
        return ""
    return f"{verdict_words(assessment.verdict, Style())} {markdown(assessment.gpu.name)}"


def _reasons(unknown: Sequence[Assessment]) -> list[str]:
    return ["", *(f"- {code(a.run.path)}: {markdown(a.why_not)}" for a in unknown)] if unknown else []
