"""Hydra's `defaults:` list: the files that a configuration is composed of (hydra 1.3, "The Defaults List").

Only files of the project count, looked up beside the configuration and in the folders of `hydra.searchpath`; what is not there
is left to the application's own files.
"""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.facts import Fact
from memlint.read.document import Document, flatten, plain
from memlint.typed import Any

MAX_FILES = 32
"""Files of one composition that are followed."""
MAX_DEPTH = 5


def composed(document: Document, context: Context, depth: int = 0) -> dict[str, Fact]:
    """The flattened facts of a document over those of its defaults list; `_self_` (last unless listed) is the document itself."""
    own = flatten(document)
    node = document.at("defaults")
    listed = plain(node) if node is not None else None
    if not isinstance(listed, list) or depth > MAX_DEPTH:
        return own
    facts: dict[str, Fact] = {}
    folders = ("", *_searched(document))
    entries = listed[:MAX_FILES] if "_self_" in listed else [*listed[:MAX_FILES], "_self_"]
    for entry in entries:
        if entry == "_self_":
            facts |= own
            continue
        for name, package in _files(entry):
            links = (own["defaults"].with_value(folder + name) for folder in folders)
            inner = next((other for link in links if (other := context.at(document.path).follow(link)) is not None), None)
            if inner is not None:
                found = composed(inner, context, depth + 1)
                facts |= {f"{package}.{key}" if package else key: fact for key, fact in found.items() if key != "defaults"}
    return facts


def _searched(document: Document) -> list[str]:
    """The project's own folders of `hydra.searchpath`, each with a slash at its end; `pkg://` is an installed package."""
    node = document.at("hydra.searchpath")
    listed = plain(node) if node is not None else None
    paths = [entry for entry in listed if isinstance(entry, str)] if isinstance(listed, list) else []
    return [f"{path.removeprefix('file://').rstrip('/')}/" for path in paths if path.startswith("file://")]


def _files(entry: Any) -> list[tuple[str, str]]:
    """`base`, `model: llama`, `actor@a.b: dp_actor` -> the file beside the configuration, and the package it fills."""
    if isinstance(entry, str):
        group, _, package = entry.partition("@")
        return [(f"{group.strip('/')}.yaml", "" if package in ("_global_", "_here_") else package)]
    if not isinstance(entry, dict):
        return []
    found = []
    for key, option in entry.items():
        group = str(key).removeprefix("optional ").removeprefix("override ").strip()
        path, at, package = group.partition("@")
        package = package if at else path.strip("/").replace("/", ".")
        options = option if isinstance(option, list) else [option]
        found += [
            (f"{path.strip('/')}/{name}.yaml", "" if package == "_global_" else package)
            for name in options
            if isinstance(name, str)
        ]
    return found
