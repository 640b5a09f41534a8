"""The index of front matter beside the pages says what the pages say."""

from __future__ import annotations

import json

import yaml

from memlint.rules.catalogue import pages_folder
from memlint.rules.page import INDEX, checksum, split


def test_the_index_is_of_the_pages_as_they_are() -> None:
    index = json.loads((pages_folder() / INDEX).read_text(encoding="utf-8"))
    fronts = {path.name: split(path)[0] for path in pages_folder().glob("MEM*.md")}
    stale = sorted(name for name, front in fronts.items() if index.get(name, [None])[0] != checksum(front))
    assert not stale, "changed since: run python tools/index_rules.py"
    assert {name: entry[1] for name, entry in index.items()} == {name: yaml.safe_load(front) for name, front in fronts.items()}
