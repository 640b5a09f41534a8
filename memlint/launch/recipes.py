"""Tools that train from a configuration file or from flags alone: axolotl, llamafactory-cli, swift, tune, litgpt, trl, verl.

The tool's dialect reads the file; flags and `key=value` words of the command line are laid over it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memlint.dialects import by_name, kind_of_document, recognise
from memlint.dialects.accelerate import launcher_facts
from memlint.dialects.accepted import unknown_flags, unknown_keys, wrong_values
from memlint.dialects.context import Context, first_document
from memlint.dialects.hydra import composed
from memlint.dialects.settle import settle
from memlint.facts import Fact, Problem, Site, TrainingRun, default, fixed, unknown
from memlint.launch.command import Command
from memlint.launch.launchers import TORCHRUN_FLAGS, Facts
from memlint.launch.words import arguments, options, text
from memlint.project import Project
from memlint.read.document import Document, flatten
from memlint.read.interpolate import interpolated
from memlint.typed import Any, NamedTuple
from memlint.versions import versions_for

TRL_COMMANDS = {
    "sft": "SFTConfig", "dpo": "DPOConfig", "grpo": "GRPOConfig", "kto": "KTOConfig", "reward": "RewardConfig",
    "rloo": "RLOOConfig",
}  # fmt: skip
OPENRLHF_TRAINERS = re.compile(r"openrlhf\.cli\.train_(?:sft|dpo|rm)")
OPEN_INSTRUCT_SCRIPTS = re.compile(r"(?:^|/)open_instruct/(?:finetune|dpo_tune_cache)\.py$")
MEGATRON_SCRIPTS = re.compile(r"(?:^|/)(pretrain_(?:gpt|bert|t5)\w*)\.py$")
SD_SCRIPTS = re.compile(
    r"(?:^|/)((?:(?:sdxl|flux|sd3|lumina|hunyuan_image|anima)_)?train(?:_network|_db|_textual_inversion)?|fine_tune)\.py$"
)
SD_SCRIPTS_FLAGS = frozenset({"dataset_config", "network_module", "train_data_dir", "in_json", "cache_latents", "config_file"})
BRIDGE_SCRIPTS = re.compile(r"(?:^|/)(?:run_recipe|(?:pretrain|finetune|quantization_aware_train)\w*)\.py$")
FSDP_QLORA_SCRIPT = re.compile(r"(?:^|/)train\.py$")
FSDP_QLORA_FLAGS = frozenset({"train_type", "model_name", "batch_size"})
FSDP_QLORA_OWN = frozenset({"context_length", "use_cpu_offload", "use_gradient_checkpointing", "sharding_strategy", "low_memory",
                            "reentrant_checkpointing"})  # fmt: skip
VERL_TRAINERS = re.compile(r"verl\.trainer\.(?:main_ppo\w*|\w*sft_trainer\w*)")


class Recipe(NamedTuple):
    """What a tool was told: the dialect, the configuration file as written, and the arguments over it."""

    dialect: str
    config: Fact | None
    native: Mapping[str, Fact]
    launcher: Mapping[str, Fact]
    extra: Mapping[str, Fact]
    """Native arguments that the sub-command itself means (`swift rlhf`, `trl dpo`)."""


def recipe(command: Command, project: Project) -> Recipe | None:
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
        return _trl(command, words, project)
    if VERL_TRAINERS.fullmatch(program):
        found = _flags("verl" if "sft" in program else "verl_ppo", command, words, {})
        return found._replace(config=hydra_config(command, found.native, project) or found.config)
    if OPENRLHF_TRAINERS.fullmatch(program):
        return _flags("openrlhf", command, words, {"openrlhf_command": fixed(program.rpartition(".")[2])})
    if OPEN_INSTRUCT_SCRIPTS.search(command.program):
        return _flags("open_instruct", command, words, {})
    if program == "unsloth" and first == "train":
        return _unsloth(command, words[1:])
    return _by_flags(command, words)


def hydra_config(command: Command, native: Mapping[str, Fact], project: Project) -> Fact | None:
    """The file of `--config-path conf --config-name x`, from the script's folder (hydra) or the working directory."""
    named = native.get("config_name")
    if named is None or not named.known:
        return None
    folder = text(native.get("config_path", named.with_value("conf")))
    script = "" if command.module else command.program.rpartition("/")[0]
    for base in (script, ""):
        path = "/".join(part for part in (base, folder, f"{text(named).removesuffix('.yaml')}.yaml") if part)
        if project.resolve(path, command.path, directory=command.directory) is not None:
            return named.with_value(path)
    return None


def _by_flags(command: Command, words: tuple[Fact, ...]) -> Recipe | None:
    """Training scripts with names that others have too: their own flags tell them apart."""
    native, _ = arguments(words)
    titan = next((name for name in ("job.config_file", "job.config") if name in native), None)
    if titan is not None or command.program == "torchtitan.train":
        config = native.pop(titan) if titan is not None else None
        return Recipe("torchtitan", config, native, command.launcher, {})
    script = MEGATRON_SCRIPTS.search(command.program)
    if script is not None and {"num_layers", "hidden_size"} <= native.keys():
        return Recipe("megatron", None, native, command.launcher, {"megatron_script": fixed(script.group(1))})
    script = SD_SCRIPTS.search(command.program)
    if (
        script is not None
        and SD_SCRIPTS_FLAGS & native.keys()
        and {"pretrained_model_name_or_path", "config_file"} & native.keys()
    ):
        config = native.pop("config_file", None)
        if config is not None and config.known and not text(config).endswith(".toml"):
            config = config.with_value(f"{text(config)}.toml")
        return Recipe("sd_scripts", config, native, command.launcher, {"sd_script": fixed(script.group(1))})
    if BRIDGE_SCRIPTS.search(command.program) and ("recipe" in native or any(name.startswith("model.") for name in native)):
        return Recipe("megatron_bridge", native.pop("config_file", None), native, command.launcher, {})
    if FSDP_QLORA_SCRIPT.search(command.program) and native.keys() >= FSDP_QLORA_FLAGS and FSDP_QLORA_OWN & native.keys():
        return Recipe("fsdp_qlora", None, native, command.launcher, {})
    return None


def is_tool(program: str) -> bool:
    """Whether the program is one of these tools; a sub-command that `recipe` does not know then trains nothing."""
    return program in ("swift", "megatron", "llamafactory-cli", "lmf", "axolotl", "litgpt", "tune", "trl", "unsloth") or (
        program.startswith(("axolotl.cli.", "verl.trainer.", "llamafactory."))
    )


def _launched_by(tool: str) -> dict[str, Fact]:
    return {"swift_backend": fixed("megatron")} if tool == "megatron" else {}


def _flags(dialect: str, command: Command, words: tuple[Fact, ...], extra: dict[str, Fact]) -> Recipe:
    native, rest = arguments(words)
    config = native.pop("config", None) if dialect != "llama_factory" else None
    if config is None:
        config = next((word for word in rest if text(word).endswith((".yaml", ".yml", ".json"))), None)
    return Recipe(dialect, config, native, command.launcher, extra)


TRL_PRESETS: dict[str, dict[str, Any]] = {
    "single_gpu": {"distributed_type": "NO"},
    "multi_gpu": {"distributed_type": "MULTI_GPU"},
    **{f"zero{n}": {"distributed_type": "DEEPSPEED", "deepspeed_config.zero_stage": n} for n in (1, 2, 3)},
    **{f"fsdp{n}": {"distributed_type": "FSDP", "fsdp_config.fsdp_version": n} for n in (1, 2)},
}
"""`trl/accelerate_configs/*.yaml` of trl 1.16.0; all but the first have 8 processes, all have bf16."""


def _trl(command: Command, words: tuple[Fact, ...], project: Project) -> Recipe:
    """`trl sft --accelerate_config zero3 --num_processes 4 ...`: trl hands these to `accelerate launch`."""
    found = _flags("trl_yaml", command, words[1:], {"trl_command": fixed(TRL_COMMANDS[text(words[0])])})
    native = dict(found.native)
    settings: Facts = {name: native[name] for name in ("num_processes", "num_machines", "mixed_precision") if name in native}
    named = native.pop("accelerate_config", None)
    preset = TRL_PRESETS.get(str(named.value)) if named is not None and named.known else None
    if named is not None and preset is not None:
        several = {} if preset["distributed_type"] == "NO" else {"num_processes": 8}
        values = {**preset, **several, "mixed_precision": "bf16"}
        settings = {**{name: named.with_value(value) for name, value in values.items()}, **settings}
    elif named is not None:
        source = project.read_link(text(named), command.path, directory=command.directory)
        document = first_document(source) if source is not None else None
        settings = {**(flatten(document) if document else {}), **settings}
    launcher = launcher_facts(settings) if settings else {}
    return found._replace(native=native, launcher={**command.launcher, **launcher})


def _unsloth(command: Command, words: tuple[Fact, ...]) -> Recipe:
    """`unsloth train --config x.yaml --batch-size 1`: a flag is a field of one of the file's sections."""
    found = _flags("unsloth_studio", command, words, {})
    from memlint.dialects.unsloth_studio import SECTIONS

    native = {next((f"{part}.{name}" for part, fields in SECTIONS.items() if name in fields), name): fact
              for name, fact in found.native.items()}  # fmt: skip
    return found._replace(native=native)


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
    dialect = by_name(found.dialect)
    native: Facts = {}
    files: tuple[str, ...] = (command.path,)
    sites: tuple[Site, ...] = ()
    problems: tuple[Problem, ...] = ()
    path = command.path
    context = Context(versions_for(path, project.pinned), path, project, command.directory)
    if found.config is not None:
        link = text(found.config) if found.config.known else ""
        source = project.read_link(link, command.path, directory=command.directory) if link else None
        document = first_document(source) if source is not None else None
        if document is None:
            return None
        context = Context(versions_for(document.path, project.pinned), document.path, project, command.directory)
        native = composed(document, context) if dialect.INTERPOLATES else flatten(document)
        path, files = document.path, (command.path, document.path)
        sites = (Site(dialect.NAME, kind_of_document(path), document.root.span),)
        problems = (*document.problems, *unknown_keys(document, dialect.NAME))
        dialect = by_name(_dialect_of(document, found.dialect))
    gone = tuple(f"{name}." for name, fact in found.native.items() if fact.known and fact.value is None)
    native = {**{name: fact for name, fact in native.items() if not name.startswith(gone)}, **found.native}
    if getattr(dialect, "INTERPOLATES", False):
        native = interpolated(native)
    asked = {f"ENV.{name}": command.env[name] for name in getattr(dialect, "ENVIRONMENT", ()) if name in command.env}
    facts = settle(dialect.facts({**native, **found.extra, **asked}, context))
    pinned = context.versions.fact()
    if pinned is not None:
        facts["framework.versions"] = pinned
    if command.passthrough and found.config is None and not native:
        return None
    return TrainingRun(
        path=command.path,
        span=command.span,
        facts=facts,
        dialect=dialect.NAME,
        recognised_by=f"launched by {command.program}",
        sites=(*sites, *context.sites, Site(dialect.NAME, "shell", command.span)),
        problems=(*problems, *unknown_flags(command.argv, dialect.NAME), *wrong_values(facts), *context.problems),
        files=(*files, *context.files),
    )


def _dialect_of(document: Document, expected: str) -> str:
    """LLaMA-Factory has two schemas; the file says which."""
    if expected == "llama_factory":
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
    shards = run.value("parallel.strategy") not in (None, "none", "ddp")  # what the tool does by itself is no guess
    if gpus is not None and gpus.known and "parallel.strategy" not in launcher and not shards:
        nodes = launcher.get("parallel.nodes")
        many = gpus.value * (nodes.value if nodes is not None and nodes.known else 1) > 1
        if found.dialect == "ms_swift" and many and processes is None:
            launcher["parallel.strategy"] = gpus.with_value("device_map").through(None, "one process: swift splits the model")
        else:
            launcher["parallel.strategy"] = gpus._replace(value="ddp" if many else "none")
    return command._replace(launcher=launcher)
