"""Read every script, notebook, launch and configuration of public repositories and say how well they were understood.

    python benchmarks/crater.py FOLDER [--limit N] [--json FILE] [--slow SECONDS] [--document docs/crater.md]

FOLDER holds one checkout a folder, named `owner+name` as in `crater_repositories.tsv` (which names their commits). It is only
read; nothing in it is executed. Prints by kind of file and by framework how many files yield a run and what is known of them,
the reasons for unknown ranked, the slowest files, and any traceback: there must be none. Times are processor time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from memlint.extract import extract
from memlint.facts import Status, TrainingRun
from memlint.project import Project
from memlint.source import kind_of

WRITTEN_BY_HAND = "## Worked off"
"""The heading from which on a page is kept when it is written anew."""
SKIPPED = {".git", "node_modules", "__pycache__", ".venv", "venv"}
REPOSITORIES = Path(__file__).with_name("crater_repositories.tsv")
STATUSES = tuple(status.value for status in Status)


class Survey:
    """What was counted."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.with_runs: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.statuses: dict[str, Counter[str]] = defaultdict(Counter)
        self.frameworks: Counter[str] = Counter()
        self.framework_statuses: dict[str, Counter[str]] = defaultdict(Counter)
        self.unread: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.times: list[tuple[float, str]] = []
        self.crashes: list[tuple[str, str]] = []
        self.repositories: Counter[str] = Counter()

    def count(self, surface: str, run: TrainingRun, path: str) -> None:
        """One run's facts."""
        framework = str(run.value("framework.name") or "not known")
        self.frameworks[framework] += 1
        for key, fact in run.facts.items():
            self.statuses[surface][fact.status.value] += 1
            self.framework_statuses[framework][fact.status.value] += 1
            if fact.status is Status.UNKNOWN:
                reason = f"{key}: {shape(fact.reason)}"
                self.reasons[reason] += 1
                self.examples.setdefault(reason, f"{path}:{run.span.line}")

    @property
    def total(self) -> int:
        """All files."""
        return sum(self.files.values())

    @property
    def seconds(self) -> float:
        """Processor time."""
        return sum(took for took, _ in self.times)


def surface_of(path: Path) -> str:
    """The kind of a file as a person names it."""
    kind = kind_of(path.name)
    assert kind is not None
    name = path.name.lower()
    if name.startswith(("makefile", "gnumakefile")) or name.endswith(".mk"):
        return "Makefile"
    if name.startswith("dockerfile") or name.endswith(".dockerfile"):
        return "Dockerfile"
    if ".github/workflows" in path.as_posix():
        return "workflow"
    return "Slurm" if name.endswith((".slurm", ".sbatch")) else str(kind.value)


def files_under(folder: Path) -> Iterator[Path]:
    """The files that memlint reads, in order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and kind_of(path.name) is not None and not SKIPPED & set(path.relative_to(folder).parts):
            yield path


def shape(reason: str) -> str:
    """A reason with the script's own names taken out, so that equal kinds are counted together."""
    reason = re.sub(r"`[^`]*`", "`x`", reason)
    return re.sub(r"'[^']*'|--[\w-]+|\b\d+\b", "…", reason)


def survey(folder: Path, limit: int | None) -> Survey:
    """Read every file."""
    found = Survey()
    projects: dict[str, Project] = {}
    for path in list(files_under(folder))[:limit]:
        surface = surface_of(path)
        inner = path.relative_to(folder)
        top = inner.parts[0]
        found.files[surface] += 1
        found.repositories[top] += 1
        project = projects.setdefault(top, Project(folder / top if (folder / top).is_dir() else folder))
        before = time.process_time()
        try:
            extraction = extract(str(path), project)
        except Exception:
            found.crashes.append((inner.as_posix(), traceback.format_exc()))
            continue
        found.times.append((time.process_time() - before, inner.as_posix()))
        for error in extraction.errors:
            found.unread[shape(error.message)] += 1
        found.with_runs[surface] += bool(extraction.runs)
        found.runs[surface] += len(extraction.runs)
        for run in extraction.runs:
            found.count(surface, run, inner.as_posix())
    return found


# --- showing ------------------------------------------------------------------------------------------------------------------


def shares(counts: Counter[str]) -> list[str]:
    """The share of each status in per cent."""
    whole = sum(counts.values()) or 1
    return [f"{100 * counts[status] / whole:.1f}" for status in STATUSES]


def quantile(times: list[float], share: float) -> float:
    """The time below which this share of the files stays."""
    return sorted(times)[min(int(len(times) * share), len(times) - 1)] if times else 0.0


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)])


def document(found: Survey, slow: float) -> str:
    """The survey as a page."""
    times = [took for took, _ in found.times]
    late = sorted(((took, where) for took, where in found.times if took > slow), reverse=True)
    facts = sum(sum(counts.values()) for counts in found.statuses.values())
    everything: Counter[str] = Counter()
    for counts in found.statuses.values():
        everything.update(counts)
    by_kind = [
        [kind, str(count), str(found.with_runs[kind]), str(found.runs[kind]), *shares(found.statuses[kind])]
        for kind, count in found.files.most_common()
    ]
    by_framework = [
        [name, str(count), *shares(found.framework_statuses[name])] for name, count in found.frameworks.most_common(25)
    ]
    reasons = [
        [str(count), reason.replace("|", "\\|"), found.examples[reason]] for reason, count in found.reasons.most_common(25)
    ]
    known = {row.split("\t")[0]: row.split("\t")[1:] for row in REPOSITORIES.read_text(encoding="utf-8").splitlines()[1:]}
    sources = [[name.replace("+", "/"), *known.get(name, ["", ""]), str(n)] for name, n in sorted(found.repositories.items())]
    runs, holders = sum(found.runs.values()), sum(found.with_runs.values())
    average = 1000 * found.seconds / max(found.total, 1)
    return f"""# Public repositories read

Written by `benchmarks/crater.py` on {datetime.date.today().isoformat()}: every file that memlint reads in {len(found.repositories)} public
repositories of training code (listed below with their commits), without looking at what it is for: libraries, tests and web
applications are among them. Nothing of them is part of this repository.

{found.total:,} files, {len(found.crashes)} tracebacks; {runs:,} training runs in {holders:,} files.
Of {facts:,} facts {", ".join(f"{100 * everything[s] / max(facts, 1):.1f} % are {s}" for s in STATUSES)}.
Processor time {found.seconds:.0f} s, {average:.0f} ms a file, {1000 * quantile(times, 0.99):.0f} ms at the
99th percentile, {max(times, default=0):.1f} s at most; {len(late)} files took more than {slow:g} s.

## By kind of file

{table(["kind", "files", "with a run", "runs", *(f"% {status}" for status in STATUSES)], by_kind)}

## By framework

{table(["framework", "runs", *(f"% {status}" for status in STATUSES)], by_framework)}

## Why a fact is unknown

{table(["facts", "key and reason", "for example"], reasons)}

## Slowest files

{table(["seconds", "file"], [[f"{took:.1f}", where] for took, where in late[:12]])}

## Repositories

{table(["repository", "commit", "date", "files"], sources)}
"""


def main() -> int:
    """Run the survey; exit status 1 when a file made memlint crash."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, help="read only the first N files")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--document", type=Path, help="write the survey as a page to this file")
    parser.add_argument("--slow", type=float, default=1.0, help="list files that take longer than this many seconds")
    options = parser.parse_args()
    found = survey(options.folder, options.limit)
    page = document(found, options.slow)
    print(page)
    for message, count in found.unread.most_common(10):
        print(f"unread: {count:5} {message}")
    for where, trace in found.crashes[:20]:
        print(f"CRASH {where}\n{trace}")
    if options.document:
        before = options.document.read_text(encoding="utf-8") if options.document.exists() else ""
        kept = before.partition(WRITTEN_BY_HAND)[2]
        options.document.write_text(page + (f"\n{WRITTEN_BY_HAND}{kept}" if kept else ""), encoding="utf-8")
    if options.json:
        figures = {"files": dict(found.files), "with_runs": dict(found.with_runs), "runs": dict(found.runs),
                   "facts": {kind: dict(counts) for kind, counts in found.statuses.items()}, "seconds": found.seconds,
                   "crashes": [where for where, _ in found.crashes], "reasons": dict(found.reasons.most_common(100))}  # fmt: skip
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 1 if found.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
