"""memlint as a process: `python -m memlint`, and the command that is installed."""

from __future__ import annotations

import gc
import os
import sys

from memlint.cli import main


def process() -> None:
    """Run the command line and end the process: a short life that makes few cycles and leaves nothing behind to tidy up.

    The collector would cost a fifth of a check, and taking the interpreter apart piece by piece as much as reading a script.
    """
    gc.set_threshold(100_000)
    code = main()
    sys.stderr.flush()  # the other one `main` has flushed: it knows what to do when nobody reads on
    os._exit(code)


if __name__ == "__main__":
    process()
