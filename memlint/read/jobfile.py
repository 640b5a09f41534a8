"""Files that hold launches without being shell scripts, told apart by name and by a search of their text."""

from __future__ import annotations

import re

from memlint.source import Kind, Source

LAUNCH = r"\bpython|torchrun|accelerate|deepspeed|\bswift\b|llamafactory|axolotl|\btune run|litgpt|\btrl\b|unsloth train"
COMMANDS = r"(?m)^[ \t-]*(?:run|script|commands?|args)[ \t]*:"


def is_makefile(path: str) -> bool:
    """By name: `Makefile`, `GNUmakefile`, `train.mk`."""
    name = path.rpartition("/")[2].lower()
    return name.startswith(("makefile", "gnumakefile")) or name.endswith(".mk")


def is_dockerfile(path: str) -> bool:
    """By name: `Dockerfile`, `Dockerfile.train`, `train.dockerfile`."""
    name = path.rpartition("/")[2].lower()
    return name.startswith("dockerfile") or name.endswith(".dockerfile")


def is_debug_file(path: str) -> bool:
    """VS Code's `launch.json`."""
    return path.rpartition("/")[2] == "launch.json"


def holds_launches(source: Source) -> bool:
    """Whether the text of a Makefile, Dockerfile, YAML job or `launch.json` may hold a launch."""
    if source.kind is Kind.SHELL:
        return is_makefile(source.path) or is_dockerfile(source.path)
    if source.kind is Kind.YAML:
        return re.search(COMMANDS, source.text) is not None and re.search(LAUNCH, source.text) is not None
    return is_debug_file(source.path) and '"configurations"' in source.text
