"""How long `memlint check` takes, in time on the clock and of the processor, as a ratio to `python -c pass` in the same run.

    python benchmarks/speed.py [--rounds N] [--limit RATIO]

A script of 300 lines with a training run, one of as many lines without, and forty files at once, as pre-commit names them.
All are whole processes, started in turns, and the fastest of each counts: what is left is the work itself and not what else the
machine does. `memlint` is the command that an installer writes. Where ruff is installed, it is timed on the same files, for scale.
Exit code 1 when the first ratio, on the clock, is above the limit.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
LINES = 300
FILES = 40

COMMAND = """import sys
from memlint.__main__ import process
sys.exit(process())
"""
"""What `pip install` writes for an entry point."""

FILLER = '''
def clean_{n}(rows, column="text", lowest=16, highest={n}00):
    """Drop what is too short, too long or seen before."""
    seen = set()
    kept = []
    for row in rows:
        text = " ".join(str(row[column]).split())
        if not lowest <= len(text) <= highest or text in seen:
            continue
        seen.add(text)
        kept.append({{**row, column: text, "part": {n}}})
    return kept

'''


def script() -> str:
    """The Trainer example with data preparation around it, as such scripts have, cut at 300 lines."""
    head, mark, tail = (EXAMPLES / "hf_trainer" / "fits.py").read_text(encoding="utf-8").partition("def main():")
    number = 0
    while (head + mark + tail).count("\n") + FILLER.count("\n") <= LINES:
        number += 1
        head += FILLER.format(n=number)
    return head + mark + tail


def preparation() -> str:
    """As many lines that train nothing."""
    text = "import torch\n"
    while text.count("\n") + FILLER.count("\n") <= LINES:
        text += FILLER.format(n=text.count("\n"))
    return text


def batch(folder: Path) -> list[str]:
    """Forty files: every example, and preparation for the rest."""
    found = sorted(path for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".yaml", ".json"))
    for number in range(FILES - len(found)):
        file = folder / f"prepare_{number}.py"
        file.write_text(preparation(), encoding="utf-8")
        found.append(file)
    return [str(path) for path in found]


class Cost(NamedTuple):
    """Seconds of one process."""

    clock: float
    processor: float


def cost(command: list[str]) -> Cost:
    """One run of a command."""
    # Byte code may be written, as pip does when it installs a package.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env={**environment, "PYTHONPATH": str(ROOT)})
    clock = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> int:
    """Compare and print; 1 above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--limit", type=float, default=6.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in {"memlint": COMMAND, "train.py": script(), "prepare.py": preparation()}.items():
            (folder / file).write_text(text, encoding="utf-8")
        check = [sys.executable, str(folder / "memlint"), "check", "--exit-zero"]
        train, prepare, many = [str(folder / "train.py")], [str(folder / "prepare.py")], batch(folder)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            f"memlint, {LINES} lines with a run": [*check, *train],
            f"memlint, {LINES} lines without one": [*check, *prepare],
            f"memlint, {FILES} files": [*check, *many],
        }
        ruff = shutil.which("ruff")
        if ruff:
            lint = [ruff, "check", "--no-cache", "--isolated", "--exit-zero"]
            commands |= {f"ruff, {LINES} lines": [*lint, *train], f"ruff, {FILES} files": [*lint, *many]}
        for command in commands.values():
            cost(command)  # the first run writes byte code
        costs: dict[str, list[Cost]] = {what: [] for what in commands}
        for _ in range(options.rounds):
            for what, command in commands.items():
                costs[what].append(cost(command))
    fastest = {what: Cost(*map(min, zip(*found, strict=True))) for what, found in costs.items()}
    base = fastest["python -c pass"]
    ratios = {what: Cost(found.clock / base.clock, found.processor / base.processor) for what, found in fastest.items()}
    for what, found in fastest.items():
        clock, processor = f"{found.clock * 1000:7.1f} ms {ratios[what].clock:6.2f}", f"{found.processor * 1000:7.1f} ms"
        print(f"{what:<34} clock {clock}   processor {processor} {ratios[what].processor:6.2f}")
    return 0 if list(ratios.values())[1].clock <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
