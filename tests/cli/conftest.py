"""Runs the command line as a user does: another process, a scrubbed environment, no terminal.

A snapshot is the whole conversation (command, output, exit code) in `snapshots/NAME.txt`. Accept new output with
`MEMLINT_UPDATE_SNAPSHOTS=1 python -m pytest tests/cli`, and read the difference before committing it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conversation import ROOT, Done, Memlint

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture
def memlint(tmp_path: Path) -> Memlint:
    """`memlint(*arguments, cwd=..., stdin=..., env=...)`; fails on any traceback."""

    def run(*arguments: str, cwd: Path = tmp_path, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
        home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
        done = subprocess.run(
            [sys.executable, "-m", "memlint", *arguments],
            cwd=cwd,
            input=stdin,
            capture_output=True,
            env={**home, **(env or {})},
            check=False,
            timeout=120,
        )
        out, err = done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
        assert "Traceback" not in out + err, err
        names = {str(tmp_path): "@@TMP@@", str(ROOT): "@@ROOT@@"}
        for path, name in names.items():
            out, err = out.replace(path, name), err.replace(path, name)
        return Done(" ".join(["memlint", *arguments]), done.returncode, out, err)

    return run


@pytest.fixture
def snapshot() -> Callable[[str, Done], None]:
    """Compare a conversation with the one on file."""

    def compare(name: str, done: Done) -> None:
        assert "internal error:" not in done.conversation
        file = SNAPSHOTS / f"{name}.txt"
        if os.environ.get("MEMLINT_UPDATE_SNAPSHOTS"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(done.conversation, encoding="utf-8")
        assert done.conversation == file.read_text(encoding="utf-8")

    return compare
