"""Commands in front of the launcher (`nohup`, `env`, `srun`, `docker run`): what they add, and what is left."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from memlint.facts import Fact
from memlint.launch import slurm
from memlint.launch.words import basename, canonical, text
from memlint.read.shell import Invocation

LAUNCHERS = frozenset(
    {
        "python", "python3", "ipython", "torchrun", "accelerate", "deepspeed", "swift", "megatron", "llamafactory-cli", "lmf",
        "axolotl", "tune", "litgpt", "trl", "fabric", "lightning", "composer", "unsloth",
    }
)  # fmt: skip
WRAPPERS = frozenset(
    {
        "nohup", "env", "time", "sudo", "exec", "nice", "ionice", "stdbuf", "timeout", "numactl", "taskset", "command",
        "unbuffer", "setsid", "srun", "salloc", "mpirun", "mpiexec", "docker", "podman", "nvidia-docker", "singularity",
        "apptainer", "enroot", "shifter", "ray", "uv", "poetry", "pipenv", "pdm", "pixi", "hatch", "rye", "conda", "mamba",
        "micromamba", "nsys", "ncu", "py-spy", "memray", "scalene", "wandb", "tmux", "screen", "ssh", "kubectl", "sky",
        "proxychains4", "xvfb-run", "catchsegv", "jsrun", "aprun", "flux", "beaker", "gantry", "ts", "tsp", "systemd-run",
    }
)  # fmt: skip
VERSIONED = re.compile(r"python\d(?:\.\d+)?t?$")


@dataclass(slots=True)
class Bare:
    """A launcher's own words, with what the commands in front of it say."""

    words: tuple[Fact, ...]
    env: dict[str, Fact]
    allocation: slurm.Options = field(default_factory=dict)
    header: slurm.Options = field(default_factory=dict)
    """The options of `sbatch`, which win over the job's own lines."""
    tasks: bool = False
    """Started by `srun` or `mpirun`: on every node of the job."""
    processes: Fact | None = None
    """The number of processes that `mpirun -np` starts."""


def is_launcher(word: Fact) -> bool:
    """Whether the word is the name (or path) of a program that starts trainings."""
    name = basename(word)
    return name in LAUNCHERS or VERSIONED.match(name) is not None


def unwrap(invocation: Invocation) -> Bare | None:
    """The launcher's words of a command; None when it starts nothing that memlint knows."""
    bare = Bare(invocation.words, dict(invocation.env))
    if invocation.wrapper:
        _outer(invocation.wrapper, bare)
    words = invocation.words
    for _ in range(8):
        if not words:
            return None
        name = basename(words[0])
        if name == "env":
            words = _environment(words[1:], bare)
            continue
        if is_launcher(words[0]):
            inner = _after_dashes(words)
            if inner is None:
                bare.words = words
                return bare
            _outer(words[: len(words) - len(inner)], bare)
            words = inner
            continue
        if name in WRAPPERS:
            start = next((i for i, word in enumerate(words[1:], 1) if is_launcher(word) or _is_script(word)), None)
            if start is None:
                return None
            if name == "ray" and not any(text(word) == "--" for word in words[:start]):
                return None
            _outer(words[:start], bare)
            words = words[start:]
            continue
        if not words[0].known and len(words) > 1 and (_is_script(words[1]) or text(words[1]) == "-m"):
            bare.words = (words[0]._replace(value="python"), *words[1:])
            return bare
        if _is_script(words[0]):
            bare.words = (words[0]._replace(value="python"), *words)
            return bare
        return None
    return None


def _is_script(word: Fact) -> bool:
    return word.known and text(word).endswith(".py")


def _after_dashes(words: tuple[Fact, ...]) -> tuple[Fact, ...] | None:
    """`python submit.py --gpus 8 -- accelerate launch ...`: the inner command."""
    for index, word in enumerate(words[:-1]):
        if text(word) == "--" and is_launcher(words[index + 1]):
            return words[index + 1 :]
    return None


def _environment(words: tuple[Fact, ...], bare: Bare) -> tuple[Fact, ...]:
    """`env -u A B=1 command`."""
    index = 0
    while index < len(words):
        written = text(words[index])
        name, equals, value = written.partition("=")
        if equals and name.isidentifier():
            bare.env[name] = words[index]._replace(value=value)
        elif written in ("-u", "--unset", "-C", "--chdir"):
            index += 1
        elif not written.startswith("-"):
            break
        index += 1
    return words[index:]


def _outer(words: tuple[Fact, ...], bare: Bare) -> None:
    """What the words in front of the launcher say about processes, GPUs and environment."""
    name = basename(words[0]) if words else ""
    if name == "env":
        _environment(words[1:], bare)
        return
    if name == "sbatch":
        bare.header |= slurm.word_options(words[1:])
        return
    if name in ("srun", "salloc"):
        bare.allocation |= slurm.word_options(words[1:])
        bare.tasks = True
        return
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else None
        option, equals, value = text(word).partition("=")
        given = word._replace(value=value) if equals else following
        if name in ("mpirun", "mpiexec") and option in ("-np", "-n", "--np") and given is not None:
            bare.processes, bare.tasks = given, True
        elif (
            name in ("mpirun", "mpiexec") and option in ("-H", "--host", "-host", "-hosts") and given is not None and given.known
        ):
            bare.allocation.setdefault("--nodes", given._replace(value=str(len(text(given).split(",")))))
        elif option in ("-e", "--env", "-x") and given is not None and "=" in text(given):
            variable, _, setting = text(given).partition("=")
            bare.env[variable] = given._replace(value=setting)
        elif canonical(option) == "gpus" and given is not None and text(given).isdigit() and name not in ("docker", "podman"):
            bare.allocation.setdefault("--gpus-per-node", given)
        elif canonical(option) in ("num_nodes", "nodes") and given is not None and text(given).isdigit():
            bare.allocation.setdefault("--nodes", given)
            bare.tasks = True


def visible(env: Mapping[str, Fact]) -> Fact | None:
    """How many GPUs `CUDA_VISIBLE_DEVICES` shows; None when it is not set or not known."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"):
        fact = env.get(name)
        if fact is None or not fact.known or fact.value is True:
            continue
        devices = [device for device in text(fact).replace(" ", "").split(",") if device and device != "-1"]
        return fact.with_value(len(devices)).through(None, name)
    return None
