"""Tools that train from a configuration file or from flags alone: axolotl, llamafactory-cli, swift, tune, litgpt, trl, verl.

The tool's dialect reads the file; flags and `key=value` words of the command line are laid over it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from memlint.facts import Fact, Problem, Site, TrainingRun, default, fixed, unknown
from memlint.launch.command import Command
from memlint.launch.launchers import TORCHRUN_FLAGS, Facts
from memlint.launch.words import arguments, options, text
from memlint.project import Project

TRL_COMMANDS = {
    "sft": "SFTConfig", "dpo": "DPOConfig", "grpo": "GRPOConfig", "kto": "KTOConfig", "reward": "RewardConfig",
    "rloo": "RLOOConfig",
}  # fmt: skip
VERL_TRAINERS = re.compile(r"verl\.trainer\.(?:main_ppo\w*|\w*sft_trainer\w*)")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a tool was told: the dialect, the configuration file as written, and the arguments over it."""

    dialect: str
    config: Fact | None
    native: Mapping[str, Fact]
    launcher: Mapping[str, Fact]
    extra: Mapping[str, Fact]
    """Native arguments that the sub-command itself means (`swift rlhf`, `trl dpo`)."""


def recipe(command: Command) -> Recipe | None:
    """What a launch tells a tool, or None when the program is no such tool or does not train."""
    program = command.program.removesuffix(".py").replace("/", ".") if command.program.startswith("swift/") else command.program
    words = command.argv
    first = text(words[0]) if words else ""
    if program in ("swift", "megatron") and first in ("sft", "pt", "rlhf"):
        return _flags("ms_swift", command, words[1:], {"swift_command": fixed(first), **_launched_by(program)})
    if program.startswith(("swift.cli.", "swift.cli._megatron.")) and program.rpartition(".")[2] in ("sft", "pt", "rlhf"):
        kind = "megatron" if "megatron" in program else "swift"
        return _flags("ms_swift", command, words, {"swift_command": fixed(program.rpartition(".")[2]), **_launched_by(kind)})
    if program in ("llamafactory-cli", "lmf") and first == "train":
        return _flags("llama_factory", command, words[1:], {})
    if program in ("llamafactory.train", "llamafactory.launcher", "llamafactory.cli"):
        return _flags("llama_factory", command, words[1:] if first == "train" else words, {})
    if program == "axolotl" and first == "train":
        return _flags("axolotl", command, words[1:], {})
    if program == "axolotl.cli.train":
        return _flags("axolotl", command, words, {})
    if program == "litgpt" and first.startswith(("finetune", "pretrain")):
        return _litgpt(command, words)
    if program == "tune" and first == "run":
        return _tune(command, words[1:])
    if program == "trl" and first in TRL_COMMANDS:
        return _flags("trl_yaml", command, words[1:], {"trl_command": fixed(TRL_COMMANDS[first])})
    if VERL_TRAINERS.fullmatch(program):
        return _flags("verl", command, words, {})
    return None


def _launched_by(tool: str) -> dict[str, Fact]:
    return {"swift_backend": fixed("megatron")} if tool == "megatron" else {}


def _flags(dialect: str, command: Command, words: tuple[Fact, ...], extra: dict[str, Fact]) -> Recipe:
    native, rest = arguments(words)
    config = native.pop("config", None) if dialect != "llama_factory" else None
    if config is None:
        config = next((word for word in rest if text(word).endswith((".yaml", ".yml", ".json"))), None)
    return Recipe(dialect, config, native, command.launcher, extra)


def _litgpt(command: Command, words: tuple[Fact, ...]) -> Recipe:
    native, rest = arguments(words[1:])
    config = native.pop("config", None)
    checkpoint = next((word for word in rest if text(word)), None)
    if checkpoint is not None:
        native.setdefault("model_name" if text(words[0]) == "pretrain" else "checkpoint_dir", checkpoint)
    return Recipe("litgpt", config, native, command.launcher, {"litgpt_command": words[0]})


def _tune(command: Command, words: tuple[Fact, ...]) -> Recipe | None:
    """`tune run [torchrun options] RECIPE --config NAME key=value ...`; several processes only with `--nproc_per_node`."""
    given = options(words, TORCHRUN_FLAGS)
    if not given.rest:
        return None
    native, _ = arguments(given.rest[1:])
    launcher = dict(command.launcher)
    gpus = given.get("nproc_per_node")
    if gpus is not None and gpus.known and text(gpus).isdigit():
        launcher["parallel.gpus"] = gpus.with_value(int(text(gpus)))
    nodes = given.get("nnodes")
    if nodes is not None and nodes.known and text(nodes).isdigit():
        launcher["parallel.nodes"] = nodes.with_value(int(text(nodes)))
    return Recipe("torchtune", native.pop("config", None), native, launcher, {"recipe": given.rest[0]})


def read_recipe(command: Command, found: Recipe, project: Project) -> TrainingRun | None:
    """The run of a tool's launch. None when its configuration is a file that is not there."""
    from memlint.dialects import by_name
    from memlint.dialects.context import Context, first_document
    from memlint.dialects.settle import settle
    from memlint.read.document import flatten
    from memlint.read.interpolate import interpolated
    from memlint.versions import versions_for

    dialect = by_name(found.dialect)
    native: Facts = {}
    files: tuple[str, ...] = (command.path,)
    sites: tuple[Site, ...] = ()
    problems: tuple[Problem, ...] = ()
    path = command.path
    if found.config is not None:
        link = text(found.config) if found.config.known else ""
        source = project.read_link(link, command.path, directory=command.directory) if link else None
        document = first_document(source) if source is not None else None
        if document is None:
            return None
        native = flatten(document)
        path, files = document.path, (command.path, document.path)
        kind = "json" if path.endswith(".json") else "yaml"
        sites = (Site(dialect.NAME, kind, document.root.span),)
        problems = document.problems
        better = _dialect_of(document, found.dialect)
        dialect = by_name(better)
    native = {**native, **found.native}
    if dialect.INTERPOLATES:
        native = interpolated(native)
    context = Context(versions_for(path, project.pinned), path, project, command.directory)
    facts = settle(dialect.facts({**native, **found.extra}, context))
    if command.passthrough and found.config is None and not native:
        return None
    return TrainingRun(
        path=command.path,
        span=command.span,
        facts=facts,
        dialect=dialect.NAME,
        recognised_by=f"launched by {command.program}",
        sites=(*sites, *context.sites, Site(dialect.NAME, "shell", command.span)),
        problems=(*problems, *context.problems),
        files=(*files, *context.files),
    )


def _dialect_of(document: object, expected: str) -> str:
    """LLaMA-Factory has two schemas; the file says which."""
    from memlint.dialects import recognise
    from memlint.read.document import Document

    if expected == "llama_factory" and isinstance(document, Document):
        found = recognise(document)
        if found is not None and found[0].NAME == "llama_factory_v1":
            return "llama_factory_v1"
    return expected


def tool_launcher(command: Command, found: Recipe, run: TrainingRun) -> Command:
    """The GPUs that a tool uses when it starts its own processes."""
    launcher = dict(found.launcher)
    env = command.env
    processes = env.get("NPROC_PER_NODE")
    spawns = found.dialect in ("ms_swift", "llama_factory", "llama_factory_v1")
    if spawns and processes is not None and processes.known and text(processes).isdigit():
        launcher["parallel.gpus"] = processes.with_value(int(text(processes)))
        nodes = env.get("NNODES")
        if nodes is None:
            launcher["parallel.nodes"] = default(1, "torchrun default")
        else:
            known = nodes.known and text(nodes).isdigit()
            launcher["parallel.nodes"] = nodes.with_value(int(text(nodes))) if known else unknown("NNODES is not known")
    gpus = launcher.get("parallel.gpus")
    if gpus is not None and gpus.known and "parallel.strategy" not in launcher:
        nodes = launcher.get("parallel.nodes")
        many = gpus.value * (nodes.value if nodes is not None and nodes.known else 1) > 1
        if found.dialect == "ms_swift" and many and processes is None:
            launcher["parallel.strategy"] = gpus.with_value("device_map").through(None, "one process: swift splits the model")
        else:
            launcher["parallel.strategy"] = replace(gpus, value="ddp" if many else "none")
    return replace(command, launcher=launcher)
