"""Programs that a script starts instead of training itself: `subprocess.run([...])`, `os.system(...)`, SageMaker jobs.

Only the words are put together here; `memlint.launch.started` reads what they launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memlint.facts import Fact, Status, default, fixed
from memlint.frameworks.names import canonical
from memlint.frameworks.native import place, plain
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Call, Instance, Symbol, Table, possible
from memlint.source import Span
from memlint.typed import NamedTuple

SPAWNERS = frozenset(
    {"subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "subprocess.Popen", "os.system"}
)
ESTIMATORS = frozenset({"HuggingFace", "PyTorch", "Estimator", "ModelTrainer"})
"""SageMaker's classes that start a training job (sagemaker 2.x `huggingface/estimator.py`, 3.x `train/model_trainer.py`)."""


class Started(NamedTuple):
    """A program that a script starts. `words` are its command line, or one shell text when `shell`."""

    words: tuple[Fact, ...]
    span: Span
    shell: bool = False
    env: Mapping[str, Fact] = {}
    directory: str | None = None
    job: Mapping[str, Fact] = {}
    """Canonical facts that the job's own options decide; empty when the words say all."""
    pins: Mapping[str, str] = {}
    """Library versions of the job's image."""


def spawned(machine: Machine, call: Call) -> Started | None:
    """What `subprocess.run(...)` or `os.system(...)` starts; None when its words are not followed at all."""
    command = call.argument("args", 0) or call.argument("command", 0)
    if command is None:
        return None
    env = call.kwargs.get("env")
    directory = call.kwargs.get("cwd")
    where = str(directory.value) if directory is not None and isinstance(directory.value, str) and directory.known else None
    table = env.value if env is not None and env.known else None
    given = {str(k): _word(f) for k, f in table.entries()} if isinstance(table, Table) else {}
    variables = {**{k: _word(f) for k, f in machine.environ.items()}, **given}
    if isinstance(command.value, Array) and command.known:
        words = [_word(item) for item in command.value.items]
        return Started(tuple(words), call.span, False, variables, where) if words else None
    if isinstance(command.value, str) and command.known:
        return Started((command,), call.span, True, variables, where)
    return None


def _word(fact: Fact) -> Fact:
    if isinstance(fact.value, Symbol) and fact.value.name == "sys.executable":
        return fact._replace(value="python")
    fact = plain(fact)
    return fact._replace(value=_text(fact.value)) if fact.known else fact


def _unquoted(word: Fact) -> Fact:
    """`"full_shard auto_wrap"` with quotes of its own: the job's command line passes a shell."""
    text = str(word.value)
    return word._replace(value=text[1:-1]) if len(text) > 1 and text[0] == text[-1] == '"' else word


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def submitted(estimator: Instance) -> Started | None:
    """The job that a SageMaker estimator starts: hyperparameters are its options, the instance type names the cards."""
    slots = _options(estimator)
    entry, folder = slots.get("entry_point") or slots.get("entry_script"), slots.get("source_dir")
    if entry is None or not entry.known or "git_config" in slots:
        return None  # its script lies in another repository
    parameters = slots.get("hyperparameters")
    words: list[Fact] = []
    for value in possible(parameters) if parameters is not None else ():
        for key, fact in value.entries() if isinstance(value, Table) else ():
            option = fixed(f"-{key}" if len(str(key)) == 1 else f"--{key}", place(fact))
            words += [option, _unquoted(_word(fact))]
    environment = slots.get("environment")
    table = environment.value if environment is not None and environment.known else None
    env = {str(k): _word(f) for k, f in table.entries()} if isinstance(table, Table) else {}
    job = _resources(slots, estimator.call.span)
    where = str(folder.value) if folder is not None and folder.known and isinstance(folder.value, str) else None
    version = slots.get("transformers_version")
    pins = {"transformers": str(version.value)} if version is not None and version.known else {}
    return Started((_word(entry), *words), estimator.call.span, False, env, where, job, pins)


def _options(estimator: Instance) -> dict[str, Fact]:
    """The estimator's arguments; a `ModelTrainer` has them in `source_code=SourceCode(...)` and `compute=Compute(...)`."""
    own = {k: f for k, f in estimator.slots.items() if isinstance(f, Fact)}
    for part in ("source_code", "compute"):
        for inner in possible(own[part]) if part in own else ():
            if isinstance(inner, Instance):
                own |= {k: f for k, f in inner.slots.items() if isinstance(f, Fact)}
    return own


def is_estimator(name: str) -> bool:
    """Whether a library name is one of SageMaker's classes that are followed."""
    root, tail = canonical(name)
    return root == "sagemaker" and tail in (ESTIMATORS | {"SourceCode", "Compute"})


def _resources(slots: dict[str, Fact], span: Span) -> dict[str, Fact]:
    instance = slots.get("instance_type")
    nodes = slots.get("instance_count") or default(1, "sagemaker: instance_count", span)
    facts: dict[str, Fact] = {"parallel.nodes": plain(nodes)}
    found = INSTANCES.get(_family(instance)) if instance is not None and isinstance(instance.value, str) else None
    if instance is None or found is None:
        return facts
    card, sizes = found
    count = sizes.get(str(instance.value).rpartition(".")[2], 1)
    facts["hardware.gpu"] = instance._replace(value=card)
    facts["parallel.gpus"] = instance._replace(value=count)
    world = count * (nodes.value if nodes.known and isinstance(nodes.value, int) else 1)
    ways = set(_enabled(slots.get("distribution"))) | ({"torchrun"} if "distributed" in slots else set())
    if ways and world > 1:
        facts["parallel.strategy"] = Fact("ddp", Status.FIXED, instance.origin)
    return facts


def _family(instance: Fact) -> str:
    return str(instance.value).removeprefix("ml.").partition(".")[0]


def _enabled(distribution: Fact | None) -> Iterator[str]:
    """The ways of `distribution={"torch_distributed": {"enabled": True}}` that start one process a GPU."""
    table = distribution.value if distribution is not None and distribution.known else None
    for key, fact in table.entries() if isinstance(table, Table) else ():
        inner = fact.value if isinstance(fact.value, Table) else None
        flag = inner.slots.get("enabled") or inner.slots.get("dataparallel") if inner is not None else None
        if flag is not None and (isinstance(flag.value, Table) or flag.value is True) and key != "parameter_server":
            yield str(key)


_BY_SIZE = {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}
INSTANCES: dict[str, tuple[str, dict[str, int]]] = {
    "p2": ("Tesla K80", {"8xlarge": 8, "16xlarge": 16}),
    "p3": ("Tesla V100 16GB", {"8xlarge": 4, "16xlarge": 8}),
    "p3dn": ("Tesla V100 32GB", {"24xlarge": 8}),
    "p4d": ("A100 40GB", {"24xlarge": 8}),
    "p4de": ("A100 80GB", {"24xlarge": 8}),
    "p5": ("H100 80GB", {"48xlarge": 8}),
    "p5e": ("H200", {"48xlarge": 8}),
    "p5en": ("H200", {"48xlarge": 8}),
    "p6-b200": ("B200", {"48xlarge": 8}),
    "g4dn": ("Tesla T4", {"12xlarge": 4, "metal": 8}),
    "g5": ("A10G", _BY_SIZE),
    "g6": ("L4", _BY_SIZE),
    "g6e": ("L40S", _BY_SIZE),
}
"""Families of AWS instances: their card, and its number by size where it is not one (docs.aws.amazon.com/ec2, "Accelerated computing
instance types", 2026)."""
