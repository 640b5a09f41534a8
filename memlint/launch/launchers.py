"""Launchers: from a command's words to a `Command`: what program trains, with which words, on how many GPUs.

Options and defaults as in torch 2.13 (`torch/distributed/run.py`), accelerate 1.15.0 (`commands/launch.py`) and deepspeed 0.19.8
(`launcher/runner.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.dialects.accelerate import launcher_facts
from memlint.dialects.context import Context, first_document
from memlint.facts import Fact, Status, default, fixed, unknown
from memlint.launch import slurm
from memlint.launch.command import Command
from memlint.launch.words import Options, basename, options, text
from memlint.launch.wrappers import Bare, visible
from memlint.project import Project
from memlint.read.document import Document, flatten
from memlint.source import Span
from memlint.versions import versions_for

TORCHRUN_FLAGS = frozenset({"standalone", "m", "module", "no_python", "run_path", "use_env", "virtual_local_rank", "h", "help"})
ACCELERATE_FLAGS = frozenset(
    {
        "h", "help", "q", "quiet", "cpu", "multi_gpu", "tpu", "enable_cpu_affinity", "dynamo_use_fullgraph",
        "dynamo_use_dynamic", "dynamo_use_regional_compilation", "use_deepspeed", "use_fsdp",
        "use_parallelism_config", "use_megatron_lm", "same_network",
        "m", "module", "no_python", "tpu_cluster", "no_tpu_cluster", "tpu_use_sudo", "downcast_bf16", "debug", "use_mps_device",
        "fp8_use_autocast_during_eval", "ipex", "use_xpu",
    }
)  # fmt: skip
DEEPSPEED_FLAGS = frozenset(
    {
        "module", "no_python", "no_local_rank", "no_ssh", "no_ssh_check", "force_multi", "save_pid", "bind_cores_to_rank", "q",
        "quiet", "elastic_training",
    }
)  # fmt: skip
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.elastic.run": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
"""Modules that are launchers."""

Facts = dict[str, Fact]


def command(bare: Bare, header: slurm.Options, span: Span, project: Project, path: str, directory: str | None) -> Command | None:
    """The launch that the words are, or None when they start no program of interest. `header` is the job's allocation."""
    allocation = {**header, **bare.header, **(bare.allocation if bare.tasks else {})}
    around = slurm.facts(allocation)
    name = basename(bare.words[0])
    words = bare.words[1:]
    base = Command("", (), span, bare.env, path=path, directory=directory)
    if name.startswith(("python", "ipython")):
        found, module, rest = _python(words)
        if found is None:
            return None
        inner = MODULES.get(found) if module else None
        if inner is None:
            return base._replace(program=found, module=module, argv=rest, launcher=_bare_facts(bare, around))
        name, words = inner, rest
    if name == "torchrun":
        return _torchrun(words, base, bare, around)
    if name == "accelerate":
        return _accelerate(words, base, bare, around, project)
    if name == "deepspeed":
        return _deepspeed(words, base, bare, around, project)
    return base._replace(program=name, argv=words, launcher=_bare_facts(bare, around))


def _python(words: tuple[Fact, ...]) -> tuple[str | None, bool, tuple[Fact, ...]]:
    """The script or module that `python` runs, and its arguments."""
    index = 0
    while index < len(words):
        written = text(words[index])
        if written == "-m" and index + 1 < len(words):
            module = words[index + 1]
            return (text(module) if module.known else None), True, words[index + 2 :]
        if written == "-c" or not words[index].known:
            return None, False, ()
        if written in ("-W", "-X"):
            index += 2
        elif written.startswith("-") and len(written) > 1:
            index += 1
        else:
            return written, False, words[index + 1 :]
    return None, False, ()


def _bare_facts(bare: Bare, around: Facts) -> Facts:
    """A program without a launcher: what the card selection and the job's allocation say."""
    facts = dict(around)
    if not bare.tasks:
        facts.pop("parallel.nodes", None)
    if bare.processes is not None:
        count = _count(bare.processes)
        nodes = facts.get("parallel.nodes")
        if count is not None and (nodes is None or nodes.known):
            facts["parallel.gpus"] = count.with_value(max(count.value // (nodes.value if nodes else 1), 1))
    else:
        shown = visible(bare.env)
        if shown is not None:
            facts["parallel.gpus"] = shown
    return facts


def _count(fact: Fact | None) -> Fact | None:
    """The option as a whole number above zero."""
    if fact is None or not fact.known or not text(fact).strip().isdigit():
        return None
    number = int(text(fact))
    return fact.with_value(number) if number > 0 else None


def _target(rest: tuple[Fact, ...], base: Command, module: bool) -> Command | None:
    if not rest or not rest[0].known:
        return None
    program = text(rest[0])
    python = basename(rest[0])
    if not module and python.startswith("python") and len(rest) > 1:
        found, module, words = _python(rest[1:])
        return base._replace(program=found, module=module, argv=words) if found else None
    return base._replace(program=program, module=module, argv=rest[1:])


def _data_parallel(gpus: Fact | None, nodes: Fact | None, note: str) -> Facts:
    """`ddp` when the launcher starts more than one process, `none` for one."""
    if gpus is None or nodes is None or not (gpus.known and nodes.known):
        return {}
    world = gpus.value * nodes.value
    decisive = gpus if gpus.value > 1 or nodes.value == 1 else nodes
    status = Status.FIXED if world > 1 and Status.FIXED in (gpus.status, nodes.status) else decisive.status
    return {"parallel.strategy": Fact("ddp" if world > 1 else "none", status, decisive.origin).through(None, note)}


# torchrun ----------------------------------------------------------------------------------------------------------------


def _torchrun(words: tuple[Fact, ...], base: Command, bare: Bare, around: Facts) -> Command | None:
    given = options(words, TORCHRUN_FLAGS)
    target = _target(given.rest, base, given.get("m", "module") is not None)
    if target is None:
        return None
    facts = {key: fact for key, fact in around.items() if key == "hardware.gpu"}
    gpus = _processes(given, bare, around)
    nodes = _nodes(given, bare)
    if gpus is not None:
        facts["parallel.gpus"] = gpus
    if nodes is not None:
        facts["parallel.nodes"] = nodes
    facts |= _data_parallel(gpus, nodes, "torchrun starts one process a GPU")
    return target._replace(launcher=facts)


def _processes(given: Options, bare: Bare, around: Facts) -> Fact | None:
    fact = given.get("nproc_per_node") or bare.env.get("PET_NPROC_PER_NODE")
    if fact is None:
        return None if given.opaque else default(1, "torchrun default")
    if fact.known and text(fact) in ("gpu", "auto"):
        found = visible(bare.env) or around.get("parallel.gpus")
        return found or unknown("torchrun starts a process for every GPU of the machine", _span(fact))
    return _count(fact) or unknown(fact.reason or f"{text(fact)} is not a number of processes", _span(fact))


def _nodes(given: Options, bare: Bare) -> Fact | None:
    fact = given.get("nnodes") or bare.env.get("PET_NNODES")
    if fact is None:
        return None if given.opaque else default(1, "torchrun default")
    low, _, high = text(fact).partition(":")
    if fact.known and high and low == high:
        fact = fact.with_value(low)
    return _count(fact) or unknown(fact.reason or f"the number of nodes is elastic ({text(fact)})", _span(fact))


def _span(fact: Fact) -> Span | None:
    return fact.origin[0].span if fact.origin else None


# accelerate --------------------------------------------------------------------------------------------------------------


def _accelerate(words: tuple[Fact, ...], base: Command, bare: Bare, around: Facts, project: Project) -> Command | None:
    first = text(words[0]) if words else ""
    if first == "launch":
        words = words[1:]
    elif first in ("config", "env", "test", "estimate-memory", "merge-weights", "tpu-config", "to-fsdp2"):
        return None
    given = options(words, ACCELERATE_FLAGS)
    target = _target(given.rest, base, given.get("m", "module") is not None)
    if target is None:
        return None
    config = _accelerate_file(given, target, project)
    native = {**(flatten(config) if config else {}), **given.values}
    unread = given.opaque or (config is None and given.get("config_file") is not None)
    context = Context(versions_for(target.path, project.pinned), target.path, project, target.directory)
    facts = _accelerate_facts(native, bare, around, context, unread=unread)
    return target._replace(launcher=facts, accelerate_config=config.path if config else None, problems=tuple(context.problems))


def _accelerate_file(given: Options, target: Command, project: Project) -> Document | None:
    named = given.get("config_file")
    if named is None or not named.known:
        return None
    source = project.read_link(text(named), target.path, directory=target.directory)
    return first_document(source) if source is not None else None


def _accelerate_facts(native: Mapping[str, Fact], bare: Bare, around: Facts, context: Context, *, unread: bool) -> Facts:
    facts = launcher_facts(native, context)
    if unread and "num_processes" not in native:
        # The file is not there: what it says is not known, and accelerate's defaults do not hold.
        return {key: fact for key, fact in facts.items() if fact.status is Status.FIXED}
    if "parallel.gpus" not in facts:
        every = unknown("accelerate launch starts a process for every GPU of the machine")
        facts["parallel.gpus"] = visible(bare.env) or around.get("parallel.gpus") or every
    strategy = facts.get("parallel.strategy")
    if strategy is None or strategy.value in ("ddp", "none"):
        facts.pop("parallel.strategy", None)
        facts |= _data_parallel(facts["parallel.gpus"], facts["parallel.nodes"], "accelerate starts one process a GPU")
    if "hardware.gpu" in around:
        facts["hardware.gpu"] = around["hardware.gpu"]
    return facts


# deepspeed ---------------------------------------------------------------------------------------------------------------


def _deepspeed(words: tuple[Fact, ...], base: Command, bare: Bare, around: Facts, project: Project) -> Command | None:
    given = options(words, DEEPSPEED_FLAGS)
    target = _target(given.rest, base, given.get("module") is not None)
    if target is None:
        return None
    facts = {key: fact for key, fact in around.items() if key == "hardware.gpu"}
    gpus, nodes = _resources(given, bare, around, target, project)
    if gpus is not None:
        facts["parallel.gpus"] = gpus
    if nodes is not None:
        facts["parallel.nodes"] = nodes
    facts |= _data_parallel(gpus, nodes, "deepspeed starts one process a GPU")
    return target._replace(launcher=facts)


def _resources(given: Options, bare: Bare, around: Facts, target: Command, project: Project) -> tuple[Fact | None, Fact | None]:
    """GPUs a node and nodes, from `--include`, `--num_gpus`, `--num_nodes` and the hostfile."""
    include = given.get("i", "include")
    if include is not None and include.known:
        hosts = [host for host in text(include).split("@") if host]
        counts = {len([d for d in host.partition(":")[2].split(",") if d]) for host in hosts}
        gpus = include.with_value(counts.pop()) if len(counts) == 1 and 0 not in counts else None
        return gpus or around.get("parallel.gpus"), include.with_value(len(hosts))
    listed = _hostfile(given.get("H", "hostfile"), target, project)
    gpus = _count(given.get("num_gpus", "num_accelerators")) or (listed[0] if listed else None)
    nodes = _count(given.get("num_nodes")) or (listed[1] if listed else None)
    if gpus is None and given.get("num_gpus", "num_accelerators", "include", "i") is not None:
        asked = given.get("num_gpus", "num_accelerators", "include", "i")
        gpus = unknown(asked.reason if asked is not None else "", _span(asked) if asked is not None else None)
    if gpus is None and not given.opaque:
        gpus = visible(bare.env) or around.get("parallel.gpus")
        gpus = gpus or unknown("deepspeed starts a process for every GPU of the machine")
    if nodes is None and not given.opaque and given.get("H", "hostfile", "num_nodes") is None:
        nodes = default(1, "deepspeed without a hostfile")
    return gpus, nodes


def _hostfile(named: Fact | None, target: Command, project: Project) -> tuple[Fact | None, Fact] | None:
    """`worker-1 slots=8` lines: GPUs a node (None when they differ) and nodes."""
    if named is None or not named.known:
        return None
    path = project.resolve(text(named), target.path, directory=target.directory)
    content = project.text(path) if path else None
    if path is None or content is None:
        return None
    slots: list[int] = []
    for line in content.splitlines()[:1000]:
        host, _, rest = line.partition("#")[0].strip().partition(" ")
        _, equals, count = rest.strip().partition("slots=")
        if host and equals and count.strip().isdigit():
            slots.append(int(count))
    if not slots:
        return None
    place = fixed(None, Span(path, 1), "hostfile")
    return (place.with_value(slots[0]) if len(set(slots)) == 1 else None), place.with_value(len(slots))
