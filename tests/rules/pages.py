"""The cases of a rule page: fenced blocks with a file, and the diagnostic that the page promises.

```yaml bad train.yaml gpu=a10g        the file to lint, and options of the command line
```json with ds.json                   another file beside it (before the case it belongs to)
```text                                the expected lines of a bad case
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^```(\w+)(?: (bad|good|with) (\S+)((?: \S+=\S+)*))?\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Case:
    """One file to lint, with the files beside it. `expected` is None for a good case."""

    kind: str
    name: str
    text: str
    options: dict[str, str]
    beside: dict[str, str] = field(default_factory=dict)
    expected: str | None = None


def cases(page: str) -> list[Case]:
    """The cases of a page's text, in order."""
    found: list[Case] = []
    beside: dict[str, str] = {}
    for language, kind, name, options, text in FENCE.findall(page):
        if kind == "with":
            beside[name] = text
        elif kind in ("bad", "good"):
            found.append(Case(kind, name, text, dict(option.split("=", 1) for option in options.split()), beside))
            beside = {}
        elif language == "text" and found and found[-1].kind == "bad" and found[-1].expected is None:
            last = found.pop()
            found.append(Case(last.kind, last.name, last.text, last.options, last.beside, text))
    return found


def replace_expected(path: Path, case: Case, shown: str) -> None:
    """Write what memlint says now into the `text` block after a bad case (MEMLINT_UPDATE_PAGES=1)."""
    waiting = False

    def block(match: re.Match[str]) -> str:
        nonlocal waiting
        if match.group(2) == "bad":
            waiting = match.group(5) == case.text
        elif match.group(1) == "text" and not match.group(2) and waiting:
            waiting = False
            return f"```text\n{shown}```"
        return match.group(0)

    path.write_text(FENCE.sub(block, path.read_text(encoding="utf-8")), encoding="utf-8")
