"""How long `memlint check` takes on one training script of 300 lines, as a ratio to `python -c pass` in the same run.

    python benchmarks/speed.py [--rounds N] [--limit RATIO]

Both are whole processes, started in turns, and the fastest of each counts: what is left is the work itself and not what
else the machine does. Exit code 1 when the ratio is above the limit.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "hf_trainer" / "fits.py"
LINES = 300

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
    example = EXAMPLE.read_text(encoding="utf-8")
    head, mark, tail = example.partition("def main():")
    number = 0
    while (head + mark + tail).count("\n") + FILLER.count("\n") <= LINES:
        number += 1
        head += FILLER.format(n=number)
    return head + mark + tail


def seconds(command: list[str]) -> float:
    """Wall time of one run of a command."""
    # Byte code may be written, as pip does when it installs a package.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env={**environment, "PYTHONPATH": str(ROOT)})
    return time.perf_counter() - start


def main() -> int:
    """Compare and print; 1 above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--limit", type=float, default=6.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.py"
        file.write_text(script(), encoding="utf-8")
        nothing = [sys.executable, "-c", "pass"]
        check = [sys.executable, "-m", "memlint", "check", "--exit-zero", str(file)]
        seconds(check)  # the first run writes byte code
        times = [(seconds(nothing), seconds(check)) for _ in range(options.rounds)]
    base, own = min(a for a, _ in times), min(b for _, b in times)
    ratio = own / base
    print(f"python -c pass {base * 1000:.1f} ms, memlint check ({LINES} lines) {own * 1000:.1f} ms, ratio {ratio:.2f}")
    return 0 if ratio <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
