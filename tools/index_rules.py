"""Write `rules/index.json`: the front matter of memlint's own rule pages as JSON, so that a check need not read YAML.

    python tools/index_rules.py

`tests/rules/test_front_matter.py` fails when a page was changed since.
"""

from __future__ import annotations

import json

from memlint.rules.catalogue import pages_folder
from memlint.rules.page import INDEX, checksum, mapping_of, split


def index() -> str:
    """The text of the index of the pages as they are, one page a line."""
    entries = {}
    for path in sorted(pages_folder().glob("MEM*.md")):
        front, _ = split(path)
        entries[path.name] = [checksum(front), mapping_of(front, str(path))]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in entries.items())
    return f"{{\n{lines}\n}}\n"


if __name__ == "__main__":
    (pages_folder() / INDEX).write_text(index(), encoding="utf-8")
