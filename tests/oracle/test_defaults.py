"""The recorded defaults against the installed libraries: after an upgrade it says what `tools/refresh_defaults.py` must do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_recorded_defaults_are_those_of_the_installed_libraries() -> None:
    command = [sys.executable, str(ROOT / "tools" / "refresh_defaults.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "transformers: as recorded" in done.stdout
    assert "peft: as recorded" in done.stdout
