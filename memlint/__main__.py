"""memlint as a process: `python -m memlint`, and the command that is installed."""

from __future__ import annotations

import gc
import sys

from memlint.cli import main


def process() -> int:
    """Run the command line; for a short life that makes few cycles, the collector only costs time (a fifth of a check)."""
    gc.set_threshold(100_000)
    code = main()
    gc.freeze()  # what is left goes with the process: the interpreter need not search it once more
    return code


if __name__ == "__main__":
    sys.exit(process())
