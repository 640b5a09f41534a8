"""Lists the keys of configuration files that memlint's dialects do not understand yet, by reason.

    python tools/unread_keys.py DIR ... [--dialect axolotl] [--all]

`tools/key_topics.yaml` sorts keys that no dialect looks at: those that have nothing to do with GPU memory, and those that have, each
kind with its reason. Printed are the second kind, and every key that is sorted nowhere: the work that a framework's new keys make. Exit
status 1 when there is such a key. `--all` lists the first kind, too.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import yaml

from memlint import defaults
from memlint.dialects import by_name, read_native, recognise
from memlint.dialects.context import Context, first_document
from memlint.facts import Fact
from memlint.project import Project
from memlint.read.document import Document, MappingNode
from memlint.source import ReadError, read

TOPICS = Path(__file__).with_name("key_topics.yaml")

COPYING = frozenset({"llama_factory", "trl_yaml", "ms_swift", "ms_swift_ray", "open_instruct", "accelerate"})
"""Dialects that look through all arguments before they read any: that a fact was looked at says nothing there."""


class Topic(NamedTuple):
    """Keys of one kind. A pattern without a dot stands for any part of a path, one with a dot for the whole path."""

    why: str
    keys: tuple[str, ...]
    dialects: frozenset[str]
    """Empty for all."""

    def holds(self, dialect: str, path: str) -> bool:
        """Whether a key is of this kind."""
        if self.dialects and dialect not in self.dialects:
            return False
        parts = path.lower().replace("--", "").replace("-", "_").split(".")
        whole = ".".join(parts)
        return any(
            fnmatchcase(whole, pattern) if "." in pattern else any(fnmatchcase(part, pattern) for part in parts)
            for pattern in self.keys
        )


def topics(kind: str) -> list[Topic]:
    """The topics of one kind: `irrelevant` or `open`."""
    rows = yaml.safe_load(TOPICS.read_text(encoding="utf-8"))[kind]
    return [Topic(row["why"], tuple(row["keys"]), frozenset(row.get("dialects", ()))) for row in rows]


class Watched(Fact):
    """A fact that remembers that its value was looked at, wherever it was copied to."""

    looked_at: ClassVar[set[int]] = set()

    @property
    def value(self) -> Any:
        """The value; noted."""
        Watched.looked_at.add(id(self))
        return self[0]


class Asked(dict[str, Fact]):
    """Native facts that remember which of them were asked for."""

    def __init__(self, facts: dict[str, Fact]) -> None:
        super().__init__(facts)
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Fact:
        self.names.add(key)
        return super().__getitem__(key)


def known_arguments() -> frozenset[str]:
    """The arguments of the HF dataclasses that have recorded defaults."""
    data = [json.loads((Path(defaults.__file__).parent / f"{name}.json").read_text()) for name in ("transformers", "trl")]
    return frozenset(field for file in data for fields in file["classes"].values() for field in fields)


def unread(document: Document, dialect_name: str, root: Path) -> Iterator[str]:
    """The dotted paths of leaves that its dialect did not look at."""
    dialect = by_name(dialect_name)

    def context() -> Context:
        return Context(path=document.path, project=Project.around(str(root)))

    native = read_native(document, dialect, context())
    watched = {path: Watched(*fact) for path, fact in native.items()}
    asked = Asked(dict(watched))
    Watched.looked_at = set()
    facts = dialect.facts(asked, context())
    looked_at, arguments = Watched.looked_at, known_arguments() if dialect_name in COPYING else frozenset()
    for path, fact in native.items():
        container = isinstance(fact.value, (dict, list)) or bool(re.search(r"\.\d+(?:\.|$)", path))
        above = [watched[path[:at]] for at, character in enumerate(path) if character == "." and path[:at] in watched]
        read_whole = any(id(parent) in looked_at and isinstance(parent[0], dict) for parent in above)
        if container or (fact.known and fact.value is None) or path in asked.names or path.partition(".")[0] in arguments:
            continue
        if dialect_name in COPYING:
            rest = {name: other for name, other in native.items() if name != path}
            if dialect.facts(rest, context()) != facts:
                continue
        elif id(watched[path]) in looked_at or read_whole:
            continue
        yield path


def documents(root: Path) -> Iterator[Document]:
    """The first document of every YAML, JSON and TOML file below a directory that has one."""
    for file in sorted(root.rglob("*")):
        if file.suffix in (".yaml", ".yml", ".json", ".toml") and file.is_file():
            try:
                document = first_document(read(str(file)))
            except ReadError:
                continue
            if document is not None and isinstance(document.root, MappingNode):
                yield document


class Sorted(NamedTuple):
    """The unread keys of one dialect: those of open topics by reason, those of no topic, the others."""

    open: dict[str, Counter[str]]
    unsorted: Counter[str]
    irrelevant: Counter[str]


def sort(dialect: str, keys: Counter[str]) -> Sorted:
    """Unread keys by topic; an open topic wins over one that is irrelevant."""
    result = Sorted({}, Counter(), Counter())
    matters, rest = topics("open"), topics("irrelevant")
    for path, count in keys.items():
        topic = next((topic for topic in matters if topic.holds(dialect, path)), None)
        if topic is not None:
            result.open.setdefault(topic.why, Counter())[path] += count
        elif any(topic.holds(dialect, path) for topic in rest):
            result.irrelevant[path] += count
        else:
            result.unsorted[path] += count
    return result


def main() -> int:
    """Print what is not understood."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--dialect")
    parser.add_argument("--all", action="store_true", help="also the keys that have nothing to do with memory")
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    files: Counter[str] = Counter()
    for root in options.directories:
        for document in documents(root):
            found = recognise(document)
            if found is None or (options.dialect and options.dialect != found[0].NAME):
                continue
            name = found[0].NAME
            files[name] += 1
            counts.setdefault(name, Counter()).update(unread(document, name, root))
    surprises = 0
    for name in sorted(counts):
        by_topic = sort(name, counts[name])
        print(f"{name}: {files[name]} files")
        for why, keys in sorted(by_topic.open.items()):
            shown = ", ".join(path for path, _ in keys.most_common(4)) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
            print(f"  not yet   {why}: {shown}")
        for path, count in by_topic.unsorted.most_common():
            print(f"  unsorted  {count:4d}  {path}")
        if options.all:
            print("  no memory " + ", ".join(sorted(by_topic.irrelevant)))
        surprises += len(by_topic.unsorted)
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
