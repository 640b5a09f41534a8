"""Environment variables: what the launch sets, what the script sets, and defaults."""

from __future__ import annotations

from memlint.facts import Fact, fixed, unknown
from memlint.read.pyeval.joins import constant, linked, opaque, weaken
from memlint.read.pyeval.machine import Machine
from memlint.source import Span
from memlint.typed import Any

LAUNCHER_VARIABLES = frozenset(
    {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
     "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NNODES"}
)  # fmt: skip


def variable(machine: Machine, name: Any, otherwise: Fact | None, span: Span) -> Fact:
    """The value of an environment variable; `otherwise` is the default given where it is read."""
    if not isinstance(name, str):
        return opaque("an environment variable whose name is not known", "environ", (), span)
    if name in machine.environ:
        return linked(machine.environ[name], span, f"environment variable {name}")
    launched = machine.launch.env.get(name) if machine.launch is not None else None
    if launched is not None:
        return linked(launched, span, f"environment variable {name}")
    if machine.launch is not None and name in LAUNCHER_VARIABLES and getattr(machine.launch, "launcher", None):
        return _rank(machine, name, span) or unknown(f"the launcher sets {name}", span)
    if otherwise is None:
        return opaque(f"the environment variable {name} is not set in the launch", "environ", (), span)
    if not constant(otherwise.value):
        return otherwise
    return linked(weaken(otherwise), span, f"default of the environment variable {name}")


def _rank(machine: Machine, name: str, span: Span) -> Fact | None:
    """Ranks as the first process sees them; sizes from the launcher's own facts."""
    launcher = getattr(machine.launch, "launcher", {})
    gpus, nodes = launcher.get("parallel.gpus"), launcher.get("parallel.nodes")
    if gpus is None:
        return None
    if name in {"RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "SLURM_LOCALID"}:
        return fixed("0", span, f"{name} of the first process")
    if not gpus.known:
        return None
    if name == "LOCAL_WORLD_SIZE":
        return Fact(str(gpus.value), gpus.status, gpus.origin)
    if name == "WORLD_SIZE" and (nodes is None or nodes.known):
        return Fact(str(gpus.value * (nodes.value if nodes else 1)), gpus.status, gpus.origin)
    return None
