"""Run the scripts of `command_lines/` with the real parsers and record what they made of their arguments.

    python tests/read_python/record_command_lines.py    (in an environment with the parsers' packages)

Writes `command_lines/recorded.json`: each launch of `launches.json` with the script's `RESULT`. Recorded with Python 3.11,
transformers 5.24.0, trl 1.16.0 and the newest click, typer, fire, tyro, absl-py, simple-parsing, hydra-core, fastcore, jsonargparse and
typed-argument-parser then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "command_lines"
AT_EXIT = """
import atexit, json, sys
def show():
    print("RESULT " + json.dumps(sys.modules["__main__"].RESULT, default=list), file=sys.__stdout__)
atexit.register(show)
"""


def main() -> None:
    """Record every launch."""
    rows = []
    hook = tempfile.TemporaryDirectory()
    (Path(hook.name) / "sitecustomize.py").write_text(AT_EXIT, encoding="utf-8")
    path = os.pathsep.join(filter(None, [hook.name, os.environ.get("PYTHONPATH", "")]))
    for script, argv, env in json.loads((HERE / "launches.json").read_text(encoding="utf-8")):
        done = subprocess.run(
            [sys.executable, script, *argv],
            cwd=HERE,
            env={**os.environ, "PYTHONPATH": path, **env},
            capture_output=True,
            text=True,
        )
        line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
        if line is None:
            sys.exit(f"{script} {argv}: {done.stderr[-2000:]}")
        rows.append({"script": script, "argv": argv, "env": env, "result": json.loads(line.removeprefix("RESULT "))})
    (HERE / "recorded.json").write_text("[\n" + ",\n".join(" " + json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
    print(f"{len(rows)} launches recorded")


if __name__ == "__main__":
    main()
