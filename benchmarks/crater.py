"""Read every script, notebook, launch and configuration under a folder and say how well they were understood.

    python benchmarks/crater.py FOLDER [--limit N] [--json FILE] [--slow SECONDS]

Prints, by kind of file: how many files yield a run, runs, facts by status, the reasons for unknown ranked, the slowest
files, and any traceback (there must be none). The folder is only read; nothing of it is executed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from memlint.extract import extract
from memlint.project import Project
from memlint.source import kind_of

SKIPPED = {".git", "node_modules", "__pycache__", ".venv", "venv"}


def files_under(folder: Path) -> list[Path]:
    """The files that memlint reads, in order."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and kind_of(path.name) is not None and not SKIPPED & set(path.relative_to(folder).parts)
    )


def shape(reason: str) -> str:
    """A reason with the script's own names taken out, so that equal kinds are counted together."""
    reason = re.sub(r"`[^`]*`", "`x`", reason)
    return re.sub(r"'[^']*'|--[\w-]+|\b\d+\b", "…", reason)


def main() -> int:
    """Run the survey; exit status 1 when a file made memlint crash."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, help="read only the first N files")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--slow", type=float, default=2.0, help="list files that take longer than this many seconds")
    options = parser.parse_args()
    files: Counter[str] = Counter()
    with_runs: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    unknown_keys: Counter[str] = Counter()
    slow: list[tuple[float, str]] = []
    crashes: list[tuple[str, str]] = []
    projects: dict[Path, Project] = {}
    started = time.perf_counter()
    for path in files_under(options.folder)[: options.limit]:
        kind = str(kind_of(path.name).value)
        files[kind] += 1
        top = options.folder / path.relative_to(options.folder).parts[0]
        project = projects.setdefault(top, Project(top if top.is_dir() else options.folder))
        before = time.perf_counter()
        try:
            found = extract(str(path), project)
        except Exception:
            crashes.append((str(path), traceback.format_exc()))
            continue
        took = time.perf_counter() - before
        if took > options.slow:
            slow.append((took, str(path)))
        for error in found.errors:
            unread[shape(error.message)] += 1
        with_runs[kind] += bool(found.runs)
        runs[kind] += len(found.runs)
        for run in found.runs:
            for key, fact in run.facts.items():
                statuses[fact.status.value] += 1
                if fact.status.value == "unknown":
                    unknown_keys[key] += 1
                    reasons[f"{key}: {shape(fact.reason)}"] += 1
                    examples.setdefault(f"{key}: {shape(fact.reason)}", f"{path}:{run.span.line}")
    seconds = time.perf_counter() - started
    total = sum(files.values())
    print(f"{total} files in {seconds:.1f} s ({1000 * seconds / max(total, 1):.1f} ms each), {len(crashes)} crashes")
    for kind in files:
        print(f"  {kind:9} {files[kind]:6} files, {with_runs[kind]:5} with a run, {runs[kind]:5} runs")
    everything = sum(statuses.values()) or 1
    print("facts: " + ", ".join(f"{name} {count} ({100 * count / everything:.1f} %)" for name, count in statuses.most_common()))
    print("unknown by key: " + ", ".join(f"{key} {count}" for key, count in unknown_keys.most_common(12)))
    print("unknown by reason:")
    for reason, count in reasons.most_common(30):
        print(f"  {count:5} {reason}   e.g. {examples[reason]}")
    for message, count in unread.most_common(10):
        print(f"  unread: {count:5} {message}")
    for took, where in sorted(slow, reverse=True)[:10]:
        print(f"  slow: {took:6.2f} s {where}")
    for where, trace in crashes[:20]:
        print(f"CRASH {where}\n{trace}")
    if options.json:
        figures = {"files": dict(files), "with_runs": dict(with_runs), "runs": dict(runs), "facts": dict(statuses),
                   "seconds": seconds,
                   "crashes": [where for where, _ in crashes], "reasons": dict(reasons.most_common(100))}  # fmt: skip
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
