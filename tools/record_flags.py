"""Record the settings that Megatron-LM, sd-scripts, torchtitan and ms-swift have, or have had, in memlint/defaults/keys.json.

    python tools/record_flags.py megatron CLONE COMMIT FORK COMMIT  (Megatron-LM d98e8a64dd, Megatron-DeepSpeed 4efb479d)
    python tools/record_flags.py sd_scripts CLONE COMMIT            (sd-scripts 48d368fa)
    python tools/record_flags.py torchtitan CLONE COMMIT            (torchtitan b5bcd76c6)
    python tools/record_flags.py ms_swift CLONE COMMIT              (ms-swift 3602360a56; added to its list of keys)

Nobody pins these: a script may be for any commit, or for a fork whose scripts have the same names. So a name that any commit up to
COMMIT knows is accepted. CLONE is a clone of the repository with its history; nothing of it is run.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

KEYS = Path(__file__).resolve().parents[1] / "memlint" / "defaults" / "keys.json"
FILES = {
    "megatron": ["megatron/arguments.py", "megatron/training/arguments.py", "megatron/post_training/arguments.py",
                 "pretrain_*.py", "train_rl.py"],
    "sd_scripts": ["library/*.py", "*train*.py", "fine_tune.py"],
    "ms_swift": ["swift/*argument*.py", "swift/*args.py"],
    "torchtitan": ["torchtitan/config_manager.py", "torchtitan/config/job_config.py", "torchtitan/config/configs.py"],
}  # fmt: skip
"""Dialect -> the files that define its settings, by the names that they have had."""

FACTORIES = ["megatron/core", "megatron/training"]
"""Where the classes lie of whose fields Megatron-LM's `ArgumentGroupFactory` makes flags."""

FLAG = re.compile(r"""add_argument\(((?:\s*f?["']-{1,2}[\w.-]+["']\s*,?)+)""")
SECTION = {"TrainingConfig": "training", "ParallelismConfig": "parallelism", "CompileConfig": "compile", "CommConfig": "comm",
           "DebugConfig": "debug", "LRScheduler": "lr_scheduler", "Float8Linear": "float8"}  # fmt: skip
"""torchtitan's classes whose section has another name than the class in snake case."""
SECTIONS = ("job", "profiling", "metrics", "model", "optimizer", "lr_scheduler", "training", "parallelism", "checkpoint", "compile",
            "activation_checkpoint", "float8", "comm", "fault_tolerance", "experimental", "validation", "debug",
            "memory_estimation")  # fmt: skip


def git(clone: str, *words: str, given: str = "") -> str:
    """What a git command says."""
    done = subprocess.run(["git", "-C", clone, *words], input=given, capture_output=True, text=True, errors="replace", check=True)
    return done.stdout


def versions(clone: str, commit: str, patterns: list[str]) -> Iterator[str]:
    """The text of every version of some files up to a commit."""
    raw = git(clone, "log", "--full-history", "--raw", "--no-abbrev", "--format=", commit, "--", *patterns)
    for name in sorted({line.split()[3] for line in raw.splitlines() if line.startswith(":")} - {"0" * 40}):
        yield git(clone, "cat-file", "blob", name)


def flags(text: str) -> set[str]:
    """The long options of a file's `add_argument` calls, as words of Python."""
    written = " ".join(found.group(1) for found in FLAG.finditer(text))
    return {name.replace("-", "_") for name in re.findall(r"--([\w.-]+)", written)}


def from_factories(clone: str, commit: str) -> set[str]:
    """The flags that `ArgumentGroupFactory(Class, exclude=[...])` makes: `--no-x` and `--disable-x` of a field that is on."""
    classes: dict[str, ast.ClassDef] = {}
    for path in git(clone, "ls-tree", "-r", "--name-only", commit, *FACTORIES).splitlines():
        if path.endswith(".py"):
            body = ast.parse(git(clone, "show", f"{commit}:{path}")).body
            classes |= {node.name: node for node in body if isinstance(node, ast.ClassDef) and node.name.endswith("Config")}
    tree = ast.parse(git(clone, "show", f"{commit}:megatron/training/arguments.py"))
    lists = {ast.unparse(node.targets[0]): node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ArgumentGroupFactory":
            left_out = next((k.value for k in node.keywords if k.arg == "exclude"), ast.List([]))
            names = set(ast.literal_eval(lists.get(ast.unparse(left_out), left_out)))
            for name, value in fields(ast.unparse(node.args[0]), classes):
                found |= set() if name in names else named(name, value)
    return found


def fields(name: str, classes: dict[str, ast.ClassDef]) -> Iterator[tuple[str, ast.AnnAssign]]:
    """The annotated fields of a class and of its bases."""
    for base in classes[name].bases:
        if ast.unparse(base) in classes:
            yield from fields(ast.unparse(base), classes)
    for item in classes[name].body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id, item


def named(name: str, item: ast.AnnAssign) -> set[str]:
    """The flags of one field."""
    value = ast.unparse(item.value) if item.value is not None else ""
    own = re.search(r"'arg_names': \[(.*?)\]", value)
    if own:
        return {word.replace("-", "_") for word in re.findall(r"'--([\w-]+)'", own.group(1))}
    if ast.unparse(item.annotation) == "bool" and (value == "True" or "default=True" in value):
        return {f"no_{name}", f"disable_{name}"}
    return {name}


def arguments(text: str) -> Iterator[str]:
    """The settings of dataclasses that `HfArgumentParser` parses: one that is on has a `--no_x` too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            for name, item in fields(node.name, {node.name: node}):
                on = item.value is not None and ast.unparse(item.annotation) == "bool" and ast.unparse(item.value) == "True"
                yield from (name, f"no_{name}") if on else (name,)


def sections(text: str) -> Iterator[tuple[str, str]]:
    """(section, setting) of torchtitan: fields of its classes, and the dotted flags that there were before them."""
    for flag in flags(text):
        section, dot, name = flag.partition(".")
        if dot:
            yield section, name
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            section = SECTION.get(node.name, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.name).lower())
            yield from ((section, name) for name, _ in fields(node.name, {node.name: node}))


def main() -> int:
    """Write the lists of one dialect."""
    dialect, *places = sys.argv[1:]
    clones = list(zip(places[::2], places[1::2], strict=True))
    known = json.loads(KEYS.read_text())
    found: dict[str, set[str]] = defaultdict(set)
    for text in (text for clone, commit in clones for text in versions(clone, commit, FILES[dialect])):
        if dialect == "ms_swift":
            found[dialect] |= {*known[dialect], *arguments(text)}
        elif dialect == "torchtitan":
            for section, name in sections(text):
                if section in SECTIONS:
                    found[f"torchtitan:{section}"].add(name)
        else:
            found[dialect] |= flags(text)
    if dialect == "megatron":
        found[dialect] |= from_factories(*clones[0])
    known |= {name: sorted(names) for name, names in found.items()}
    lines = (f" {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known))
    KEYS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
