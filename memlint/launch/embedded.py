"""Launches in files that are not shell scripts: Makefiles, Dockerfiles, and the commands of job files in YAML and JSON.

YAML: `run:` of GitHub workflows, SkyPilot tasks and the like, `command`/`args` of Kubernetes containers and Compose services.
JSON: VS Code's `launch.json`. Makefiles and Dockerfiles are `build_files`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from memlint.facts import Extraction, Fact, Status, TrainingRun, fixed
from memlint.launch import slurm
from memlint.launch.build_files import dockerfile, makefile
from memlint.launch.read import launched, walk
from memlint.launch.shell_text import Shell
from memlint.project import Project
from memlint.read.document import Document, MappingNode, Node, Scalar, SequenceNode
from memlint.read.jobfile import LAUNCH, is_debug_file, is_dockerfile, is_makefile
from memlint.read.jsondoc import read_json
from memlint.read.shell import Joined, Lines, Piece, ShellError, Value
from memlint.read.yamldoc import read_yaml
from memlint.source import Kind, ReadError, Source

MAX_BLOCKS = 200
EXPRESSION = r"\$\{\{.*?\}\}"


def shells_of(source: Source) -> Iterator[Shell]:
    """The shell texts of a file that is no shell script; none for other files. Raises `ReadError` for broken YAML or JSON."""
    if is_makefile(source.path):
        yield from makefile(source)
    elif is_dockerfile(source.path):
        yield from dockerfile(source)
    elif source.kind is Kind.YAML:
        for document in read_yaml(source):
            yield from jobs(document)
    elif is_debug_file(source.path):
        yield from debug_launches(read_json(source))


def read_embedded(source: Source, project: Project) -> Extraction:
    """The runs of the launches in a file's shell texts. A text that the shell refuses is left out. Raises `ReadError`."""
    runs: list[TrainingRun] = []
    errors: list[ReadError] = []
    for count, shell in enumerate(shells_of(source)):
        if count >= MAX_BLOCKS:
            break
        if not re.search(LAUNCH, shell.text.text):
            continue
        try:
            script = walk(shell.text, source.path, project, shell.environment)
        except ShellError:
            continue
        found = launched(script, shell.allocation, project, source.path)
        runs.extend(found.runs)
        errors.extend(found.errors)
    return Extraction(tuple(runs), tuple(errors))


# YAML and JSON -----------------------------------------------------------------------------------------------------------


def jobs(document: Document) -> Iterator[Shell]:
    """The commands of a job file: every `run`, `command`, `args` and `script` below the root."""
    stack: list[tuple[Node, dict[str, Value], slurm.Options]] = [(document.root, {}, {})]
    while stack:
        node, environment, allocation = stack.pop()
        if isinstance(node, SequenceNode):
            stack.extend((item, environment, allocation) for item in reversed(node.items))
        if not isinstance(node, MappingNode):
            continue
        environment = {**environment, **_environment(node)}
        allocation = {**allocation, **_resources(node)}
        replicas = node.get("pytorchReplicaSpecs")
        if isinstance(replicas, MappingNode) and replicas.entries:
            # All roles run the same program: one job, of as many nodes as there are replicas.
            stack.append((replicas.entries[0].value, {**environment, **_replicated(node, replicas)}, allocation))
            continue
        environment |= _sky(allocation)
        for key in ("run", "script", "commands"):
            value = node.get(key)
            if isinstance(value, Scalar) and isinstance(value.value, str):
                yield Shell(_filled(_scalar(document.path, value)), environment, allocation)
        command, arguments = node.get("command"), node.get("args") or node.get("arguments")
        if command is not None or isinstance(arguments, SequenceNode):
            words = [piece for part in (command, arguments) if part is not None for piece in _words(document.path, part)]
            if words:
                yield Shell(Joined(tuple(words)), environment, allocation)
        children = [(entry.value, environment, allocation) for entry in node.entries if entry.key not in ("env", "envs")]
        stack.extend(reversed(children))


def _scalar(path: str, node: Scalar) -> Joined | Lines:
    """A scalar's text at its place: a block scalar (`|`) starts on the line after its indicator, with its indentation cut."""
    text = str(node.value)
    if node.span.end_line > node.span.line and "\n" in text:
        pieces: list[Piece] = []
        for index, row in enumerate(text.split("\n")):
            place = Lines(path, row, line=node.span.line + 1 + index)
            pieces.extend((*(p for p in place.pieces(0, len(row)) if p.text), Piece("\n")))
        return Joined(tuple(pieces))
    return Lines(path, text, line=node.span.line, column=node.span.column + (1 if node.quoted else 0))


def _filled(text: Joined | Lines) -> Joined | Lines:
    """The text with what a workflow fills in (`${{ matrix.bs }}`) as unknown."""
    pieces: list[Piece] = []
    start = 0
    for match in re.finditer(EXPRESSION, text.text):
        reason = f"`{match.group()}` is filled in by the workflow"
        pieces.extend((*text.pieces(start, match.start()), Piece(match.group(), status=Status.UNKNOWN, reason=reason)))
        start = match.end()
    if not pieces:
        return text
    return Joined((*pieces, *text.pieces(start, len(text.text))))


def _words(path: str, node: Node) -> Iterator[Piece]:
    """A command as a list of words, or as one text."""
    if isinstance(node, Scalar):
        if isinstance(node.value, str):
            text = _scalar(path, node)
            yield from text.pieces(0, len(text.text))
            yield Piece(" ")
    elif isinstance(node, SequenceNode):
        for item in node.items:
            if isinstance(item, Scalar) and item.value is not None:
                yield Piece("'")
                text = _scalar(path, item) if isinstance(item.value, str) else Lines(path, item.text, line=item.span.line)
                yield from (p for p in text.pieces(0, len(text.text)) if p.text)
                yield Piece("' ")


def _environment(node: MappingNode) -> dict[str, Value]:
    """`env`, `envs`, `environment` as a mapping or as `- name: A, value: b`."""
    found: dict[str, Value] = {}
    for key in ("env", "envs", "environment"):
        block = node.get(key)
        if isinstance(block, MappingNode):
            for entry in block.entries:
                if isinstance(entry.value, Scalar) and entry.value.value is not None:
                    found[entry.key] = _setting(entry.value, key == "envs")
        elif isinstance(block, SequenceNode):
            for item in block.items:
                name, value = (item.get("name"), item.get("value")) if isinstance(item, MappingNode) else (None, None)
                if isinstance(name, Scalar) and isinstance(value, Scalar) and value.value is not None:
                    found[name.text] = _setting(value, False)
    return found


def _setting(node: Scalar, overridable: bool) -> Value:
    """SkyPilot's `envs` can be set on its command line; what a workflow fills in is not known before it runs."""
    if "${{" in node.text:
        reason = f"`{node.text.strip()}` is filled in by the workflow"
        return (Piece(node.text, Lines("", node.text), -1, Status.UNKNOWN, reason),)
    status = Status.DEFAULT if overridable else Status.FIXED
    return (Piece(node.text, Lines("", node.text), -1, status, chain=fixed(None, node.span, "environment").origin),)


def _resources(node: MappingNode) -> slurm.Options:
    """GPUs and nodes that a job asks for: SkyPilot's `accelerators: H100:8`, Kubernetes' `nvidia.com/gpu: 8`."""
    found: dict[str, Fact] = {}
    resources = node.get("resources")
    accelerators = resources.get("accelerators") if isinstance(resources, MappingNode) else None
    if isinstance(accelerators, MappingNode) and len(accelerators.entries) == 1:  # several are alternatives: any of them
        entry = accelerators.entries[0]
        count = entry.value.text if isinstance(entry.value, Scalar) and entry.value.value is not None else "1"
        found["--gpus-per-node"] = fixed(f"{entry.key}:{count}", accelerators.span)
    if isinstance(accelerators, Scalar) and isinstance(accelerators.value, str):
        name, _, count = accelerators.value.partition(":")
        found["--gpus-per-node"] = fixed(f"{name}:{count or 1}", accelerators.span)
    limits = resources.get("limits") if isinstance(resources, MappingNode) else None
    for gpu in ("nvidia.com/gpu", "amd.com/gpu"):
        amount = limits.get(gpu) if isinstance(limits, MappingNode) else None
        if isinstance(amount, Scalar):
            found["--gpus-per-node"] = fixed(amount.text, amount.span)
    selector = node.get("nodeSelector")
    for label in ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "gpu.nvidia.com/model"):
        card = selector.get(label) if isinstance(selector, MappingNode) else None
        if isinstance(card, Scalar):
            found["--constraint"] = fixed(card.text, card.span)
    nodes = node.get("num_nodes")
    if isinstance(nodes, Scalar):
        found["--nodes"] = fixed(nodes.text, nodes.span)
    return found


def _replicated(job: MappingNode, replicas: MappingNode) -> dict[str, Value]:
    """What Kubeflow's PyTorchJob sets for torchrun (training-operator 1.8 `pkg/controller.v1/pytorch/envvar.go`)."""
    counts = [entry.value.get("replicas") for entry in replicas.entries if isinstance(entry.value, MappingNode)]
    texts = [count.text if isinstance(count, Scalar) else "1" for count in counts]
    found: dict[str, Value] = {}
    if all(text.isdigit() for text in texts):
        total = str(sum(int(text) for text in texts))
        found["PET_NNODES"] = (Piece(total, chain=fixed(None, replicas.span, "replicas").origin),)
    processes = job.get("nprocPerNode")
    if isinstance(processes, Scalar) and processes.text:
        found["PET_NPROC_PER_NODE"] = _setting(processes, False)
    return found


def _sky(allocation: slurm.Options) -> dict[str, Value]:
    """The variables that SkyPilot sets in a task."""
    gpus, nodes = slurm.gpus_per_node(allocation), allocation.get("--nodes")
    found: dict[str, Value] = {}
    if gpus is not None:
        found["SKYPILOT_NUM_GPUS_PER_NODE"] = (Piece(str(gpus.value), chain=gpus.origin),)
    if nodes is not None:
        found["SKYPILOT_NUM_NODES"] = (Piece(str(nodes.value), chain=nodes.origin),)
    return found


def debug_launches(document: Document) -> Iterator[Shell]:
    """VS Code's `launch.json`: `program` or `module` with `args` and `env`."""
    configurations = document.mapping.get("configurations")
    for node in configurations.items if isinstance(configurations, SequenceNode) else ():
        if not isinstance(node, MappingNode):
            continue
        program, module, arguments = node.get("program"), node.get("module"), node.get("args")
        target = program if isinstance(program, Scalar) else module
        if not isinstance(target, Scalar) or not isinstance(target.value, str):
            continue
        name = target.value.removeprefix("${workspaceFolder}/")
        if "$" in name:
            continue
        head = f"python {'' if target is program else '-m '}{json.dumps(name)} "
        words = [Piece(head, chain=fixed(None, target.span).origin)]
        words += list(_words(document.path, arguments)) if arguments is not None else []
        yield Shell(Joined(tuple(words)), _environment(node), {})
