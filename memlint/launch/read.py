"""From a shell text to the training runs that it launches."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from memlint.dialects import recognise
from memlint.dialects.context import Dialect, first_document
from memlint.facts import Extraction, Problem, TrainingRun
from memlint.launch import slurm
from memlint.launch.combine import merged, with_launch
from memlint.launch.command import Command
from memlint.launch.launchers import command as command_of
from memlint.launch.recipes import Recipe, hydra_config, is_tool, read_recipe, recipe, tool_launcher
from memlint.launch.relocate import Origins, relocated
from memlint.launch.words import arguments, basename, text
from memlint.launch.wrappers import unwrap
from memlint.paths import posix
from memlint.project import Project
from memlint.read.shell import Joined, Lines, Script, ShellError, Value, evaluate
from memlint.source import Kind, ReadError, Source, Span, kind_of

MAX_LAUNCHES = 64
"""Distinct launches that are followed in one file; ways to one launch count each."""
MAX_FRUITLESS = 3
"""A program that trained nothing in so many launches (an evaluation script in a sweep) is not read again."""
CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
OTHER_WORK = re.compile(r"infer|eval|export|merge|generat|preprocess|convert|serve|download|predict|chat|tokeniz|upload|score")
"""Names of scripts that take a training's configuration for another purpose."""
LLAMA_FACTORY_FLAGS = frozenset({"stage", "finetuning_type", "dataset", "template", "do_train"})


def read_launch(source: Source, project: Project) -> Extraction:
    """The training runs that a shell script launches, in source order: one for each launch line that trains."""
    lines = Lines(source.path, "\n".join(source.lines))
    allocation = slurm.headers(lines)
    try:
        script = walk(lines, source.path, project, slurm.environment(allocation))
    except ShellError as error:
        place = lines.span(error.offset, error.offset)
        return Extraction(errors=(ReadError(f"not valid shell text: {error.message}", source.path, place.line, place.column),))
    return launched(script, allocation, project, source.path)


def walk(
    shell: Lines | Joined, path: str, project: Project, environment: Mapping[str, Value], directory: str | None = None
) -> Script:
    """The commands of a shell text that stands in the file `path`. Raises `ShellError`."""
    absolute = posix(os.path.abspath(path))  # links are not followed

    def follow(link: str, directory: str | None) -> Lines | None:
        target = project.resolve(link, path, directory=directory)
        if target is None or os.path.abspath(target) == absolute:  # spelling only
            return None
        content = project.text(target)
        return None if content is None else Lines(target, content.replace("\r\n", "\n"))

    return evaluate(shell, path=absolute, environment=environment, directory=directory, follow=follow)


def launched(script: Script, allocation: slurm.Options, project: Project, path: str) -> Extraction:
    """The runs of a script's commands. Alternatives of one line become one run with choices."""
    written, origins = _written(script, path)
    if written:
        project = project.with_texts(written)
    ways: dict[Span, list[tuple[TrainingRun, ...]]] = {}
    errors: dict[tuple[str, int, str], ReadError] = {}
    seen: list[Command] = []
    fruitless: Counter[str] = Counter()
    for invocation in script.invocations:
        bare = unwrap(invocation)
        header = allocation
        submitted = bool(invocation.wrapper) and basename(invocation.wrapper[0]) == "sbatch"
        if submitted and invocation.span.path != path:
            header = slurm.headers(Lines(invocation.span.path, project.text(invocation.span.path) or ""))  # its own job
        found = None if bare is None else command_of(bare, header, invocation.span, project, path, invocation.directory)
        if found is None:
            continue
        found = found._replace(passthrough=invocation.passthrough)
        if found in seen or len(seen) >= MAX_LAUNCHES or fruitless[found.program] >= MAX_FRUITLESS:
            continue
        seen.append(found)
        extraction = read_command(found, project)
        fruitless[found.program] += not extraction.runs
        ways.setdefault(invocation.span, []).append(extraction.runs)
        for error in extraction.errors:
            errors[error.path, error.line, error.message] = error
    runs = [run for span in sorted(ways) for run in merged(ways[span])]
    problems = _cut_short(script, runs)
    runs = [run._replace(problems=(*run.problems, *problems.get(run.span, ()))) for run in runs]
    return Extraction(tuple(relocated(run, origins) for run in runs), tuple(errors.values()))


def read_command(command: Command, project: Project) -> Extraction:
    """The runs of one launch: through the tool's dialect, or through the script that it starts."""
    tool = recipe(command, project)
    if tool is not None:
        run = read_recipe(command, tool, project)
        return Extraction() if run is None else Extraction((with_launch(run, tool_launcher(command, tool, run)),))
    if is_tool(command.program):
        return Extraction()
    source = _script(command, project)
    found = Extraction()
    if source is not None and source.kind is Kind.PYTHON:
        from memlint.frameworks import read_script

        found = read_script(source, project, command)
    if not found.runs and not OTHER_WORK.search(command.program.rpartition("/")[2]):
        run = _configured(command, project, missing=source is None)
        if run is not None:
            return Extraction((with_launch(run, command),), found.errors)
    return Extraction(tuple(with_launch(run, command) for run in found.runs), found.errors)


def _script(command: Command, project: Project) -> Source | None:
    """The Python file that a launch starts."""
    names = [command.program]
    if command.module:
        inside = command.program.replace(".", "/")
        names = [f"{inside}.py", f"{inside}/__main__.py", f"src/{inside}.py", f"src/{inside}/__main__.py"]
    for name in names:
        path = project.resolve(name, command.path, directory=command.directory)
        if path is not None:
            try:
                return project.read(path, kind_of(path) or Kind.PYTHON)
            except ReadError:
                return None
    return None


def _configured(command: Command, project: Project, *, missing: bool) -> TrainingRun | None:
    """A script that cannot be read (or holds no training itself) with a training configuration among its arguments."""
    native, rest = arguments(command.argv)
    links = [fact for fact in (*native.values(), *rest) if fact.known and text(fact).endswith(CONFIG_SUFFIXES)]
    hydra = hydra_config(command, native, project)
    if hydra is not None:
        links = [hydra, *links]
    for link in links[:8]:
        source = project.read_link(text(link), command.path, directory=command.directory)
        try:
            document = first_document(source) if source is not None else None
        except ReadError:
            continue
        known = recognise(document) if document is not None else None
        if known is not None and not known[0].FRAGMENT:
            over = {name: fact for name, fact in native.items() if fact is not link}
            return read_recipe(command, Recipe(_module(known[0]), link, over, command.launcher, {}), project)
    if missing and len(LLAMA_FACTORY_FLAGS & native.keys()) >= 3 and "finetuning_type" in native:
        return read_recipe(command, Recipe("llama_factory", None, native, command.launcher, {}), project)
    return None


def _module(dialect: Dialect) -> str:
    """The name under which `by_name` finds a dialect."""
    return str(getattr(dialect, "__name__", dialect.NAME)).rpartition(".")[2]


def _written(script: Script, path: str) -> tuple[dict[str, Source], dict[str, Origins]]:
    """The files that the script writes, beside it, and where their text stands in it."""
    base = os.path.dirname(path)
    sources: dict[str, Source] = {}
    origins: dict[str, Origins] = {}
    for file in script.written:
        kind = kind_of(file.path)
        if kind is not None and not file.path.startswith(("/dev", "~")):
            name = posix(os.path.join(base, file.path))
            sources[name] = Source(name, kind, file.text.text)
            origins[name] = file.text
    return sources, origins


def _cut_short(script: Script, runs: Iterable[TrainingRun]) -> dict[Span, tuple[Problem, ...]]:
    """Options that stand as a command of their own: a comment or a blank after `\\` ended the launch above them."""
    found: dict[Span, tuple[Problem, ...]] = {}
    ends = {(run.path, run.span.end_line): run.span for run in runs}
    for invocation in script.invocations:
        first = text(invocation.words[0]) if invocation.words else ""
        if not first.startswith("--"):
            continue
        above = [span for (path, line), span in ends.items() if path == invocation.span.path and line < invocation.span.line]
        if not above or invocation.span.line - max(above).end_line > 40:
            continue
        message = f"{first} is not part of the launch above: a comment line or a blank after the backslash ends a command"
        problem = Problem("launch-cut-short", message, invocation.span, (max(above),))
        if problem not in found.get(max(above), ()):
            found[max(above)] = (*found.get(max(above), ()), problem)
    return found
