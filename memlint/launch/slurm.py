"""What a SLURM job has: the options of `#SBATCH` headers, `srun` and `salloc`, and the variables SLURM sets from them.

Option names and variables as in the manual pages sbatch(1) and srun(1) of SLURM 24.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from memlint.facts import Fact, Status, fixed
from memlint.read.shell import Lines, Piece, Value

HEADER = re.compile(r"^#SBATCH[ \t]+(.*?)[ \t]*$", re.MULTILINE)
OPTION = re.compile(r"(?:^|(?<=\s))(--?[A-Za-z][\w-]*)(?:[= \t]*)([^\s#-][^\s#]*)?")
SHORT = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus", "-C": "--constraint", "-p": "--partition"}
GPUS = re.compile(r"(?:gres/)?(?:gpu|gpus)?:?(?:([A-Za-z][\w.-]*):)?(\d+)")

Options = dict[str, Fact]
"""Long option name (`--nodes`) to its value as text."""


def headers(lines: Lines) -> Options:
    """The options of the `#SBATCH` lines, which end at the first command."""
    found: Options = {}
    for header in HEADER.finditer(lines.text):
        for option in OPTION.finditer(header.group(1)):
            name, value = SHORT.get(option.group(1), option.group(1)), option.group(2)
            if value:
                base = header.start(1)
                found[name] = fixed(value, lines.span(base + option.start(2), base + option.end(2)), "#SBATCH")
    return found


def word_options(words: Iterable[Fact]) -> Options:
    """The options of an `srun` or `salloc` command up to its first other word."""
    found: Options = {}
    pending = ""
    for word in words:
        text = word.value if isinstance(word.value, str) else ""
        if text.startswith("-"):
            name, equals, value = text.partition("=")
            if not equals and len(text) > 2 and text[1] != "-":
                name, value = text[:2], text[2:]
            pending = SHORT.get(name, name)
            if value:
                found[pending] = word._replace(value=value)
                pending = ""
        elif pending:
            found[pending] = word
            pending = ""
    return found


def facts(options: Options) -> dict[str, Fact]:
    """The canonical facts that an allocation decides: GPUs a node, nodes, the card."""
    found: dict[str, Fact] = {}
    nodes = _number(options.get("--nodes"))
    if nodes is not None:
        found["parallel.nodes"] = nodes
    gpus = gpus_per_node(options)
    if gpus is not None:
        found["parallel.gpus"] = gpus
    card = _card(options)
    if card is not None:
        found["hardware.gpu"] = card
    return found


def gpus_per_node(options: Options) -> Fact | None:
    """GPUs a node, from whichever option says it."""
    for name in ("--gpus-per-node", "--gres"):
        fact = options.get(name)
        count = _gpu_count(fact)
        if fact is not None and count is not None:
            return fact.with_value(count)
    nodes = _number(options.get("--nodes"))
    total = options.get("--gpus")
    count = _gpu_count(total)
    if total is not None and count is not None:
        return total.with_value(count // max(nodes.value if nodes else 1, 1))
    per_task = options.get("--gpus-per-task")
    count = _gpu_count(per_task)
    tasks = _number(options.get("--ntasks-per-node"))
    if tasks is None and nodes is not None and nodes.value:
        all_tasks = _number(options.get("--ntasks"))
        tasks = all_tasks.with_value(all_tasks.value // nodes.value) if all_tasks else None
    if per_task is not None and count is not None:
        return per_task.with_value(count * (tasks.value if tasks else 1))
    return None


def environment(options: Options) -> dict[str, Value]:
    """The variables that SLURM sets in the job from its options."""
    nodes = _number(options.get("--nodes"))
    per_node = _number(options.get("--ntasks-per-node"))
    tasks = _number(options.get("--ntasks"))
    gpus = gpus_per_node(options)
    found: dict[str, Fact] = {}
    if nodes is not None:
        found |= {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes}
    if per_node is not None:
        found["SLURM_NTASKS_PER_NODE"] = per_node
    if tasks is None and per_node is not None:
        tasks = per_node.with_value(per_node.value * (nodes.value if nodes else 1))
    if tasks is not None:
        found |= {"SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks}
    if gpus is not None:
        found["SLURM_GPUS_ON_NODE"] = gpus
        if "--gpus-per-node" in options:
            found["SLURM_GPUS_PER_NODE"] = gpus
    return {name: (Piece(str(fact.value), status=fact.status, chain=fact.origin),) for name, fact in found.items()}


def _number(fact: Fact | None) -> Fact | None:
    """The option as a whole number (`4`; `2-4` and `$N` are none)."""
    if fact is None or not fact.known or not str(fact.value).isdigit():
        return None
    return fact.with_value(int(fact.value))


def _gpu_count(fact: Fact | None) -> int | None:
    """`8`, `gpu:8`, `gpu:a100:8`, `a100:8`."""
    if fact is None or not fact.known:
        return None
    for part in str(fact.value).split(","):
        match = GPUS.fullmatch(part)
        if match:
            return int(match.group(2))
    return 1 if str(fact.value) == "gpu" else None


def _card(options: Mapping[str, Fact]) -> Fact | None:
    """The card's name in a GPU request (`gpu:a100:8`), or a `--constraint` that is the name of one."""
    from memlint.gpus import find

    for name in ("--gres", "--gpus-per-node", "--gpus", "--gpus-per-task"):
        fact = options.get(name)
        match = GPUS.fullmatch(str(fact.value)) if fact is not None and fact.known else None
        if fact is not None and match and match.group(1) and find(match.group(1)) is not None:
            return fact.with_value(match.group(1))
    fact = options.get("--constraint")
    if fact is not None and fact.status is Status.FIXED:
        for word in re.split(r"[&|,\[\]*]", str(fact.value)):
            if word and find(word) is not None:
                return fact.with_value(word)
    return None
