"""One run of the command line, as a user sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Done:
    command: str
    code: int
    out: str
    err: str

    @property
    def conversation(self) -> str:
        parts = [f"$ {self.command}", self.out.rstrip("\n")]
        if self.err:
            parts += ["--- standard error", self.err.rstrip("\n")]
        return "\n".join(filter(None, [*parts, f"--- exit {self.code}"])) + "\n"


Memlint = Callable[..., Done]
