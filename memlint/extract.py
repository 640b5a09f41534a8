"""From a file to its training runs: the one door to every reader.

`extract` looks at what a file is, calls the reader for it, and lays what people state in `# memlint:` comments over the
result.
"""

from __future__ import annotations

from memlint.comments import ORIGIN, comments_of
from memlint.facts import Extraction, Fact, TrainingRun, fixed
from memlint.project import Project
from memlint.read.jobfile import holds_launches
from memlint.source import Kind, ReadError, Source, Span, kind_of

__all__ = ["Project", "extract", "malformed"]


def extract(path: str, project: Project | None = None, text: str | None = None) -> Extraction:
    """The training runs that a file describes, and what could not be read.

    `text` stands in for the file's content (standard input). Never raises: what cannot be read is in `errors`.
    """
    project = project or Project.around(path)
    try:
        if text is not None:
            source = Source(path, kind_of(path) or Kind.PYTHON, text)
            project = project.with_texts({path: source})
        else:
            source = project.read(path)
        found = _dispatch(source, project)
    except ReadError as error:
        return Extraction(errors=(error,))
    return Extraction(tuple(_stated(run, project) for run in found.runs), found.errors)


def _stated(run: TrainingRun, project: Project) -> TrainingRun:
    """The run with what comments in its files say: `# memlint: set key=value`, `# memlint: gpu=t4`; the file itself last.

    A comment that is malformed is the business of whoever checks the file that holds it.
    """
    facts: dict[str, Fact] = {}
    for path in (*(file for file in run.files if file != run.path), run.path):
        try:
            source = project.read(path, kind_of(path) or Kind.SHELL)
        except ReadError:
            continue
        for comment in comments_of(source):
            span = Span(path, comment.line, comment.column, comment.line, comment.end_column, comment.cell)
            verb, _, rest = comment.text.partition(" ")
            key, _, value = (part.strip() for part in comment.text.partition("="))
            try:
                if verb == "set":
                    from memlint.facts.keys import parse

                    name, parsed = parse(rest)
                    facts[name] = fixed(parsed, span, ORIGIN)
                elif key == "gpu":
                    facts["hardware.gpu"] = fixed(value, span, ORIGIN)
                elif key == "gpus":
                    facts["parallel.gpus"] = fixed(int(value), span, ORIGIN)
            except ValueError:
                continue
    return run.with_facts(facts) if facts else run


def _dispatch(source: Source, project: Project) -> Extraction:
    """Readers are imported when a file needs them: a YAML file must not pay for the Python interpreter."""
    if source.kind in (Kind.YAML, Kind.JSON, Kind.TOML):
        from memlint.dialects import read_config

        found = read_config(source, project)
        return found if found.runs or found.errors or not holds_launches(source) else _embedded(source, project)
    if source.kind is Kind.PYTHON:
        from memlint.frameworks import read_script

        return read_script(source, project)
    if source.kind is Kind.SHELL:
        from memlint.launch import read_launch

        return _embedded(source, project) if holds_launches(source) else read_launch(source, project)
    if source.kind is Kind.NOTEBOOK:
        from memlint.launch.notebooks import read_notebook_runs

        return read_notebook_runs(source, project)
    return Extraction()


def malformed(path: str, project: Project) -> ReadError | None:
    """Why a file does not parse as what its name says, for a file that readers passed over as no training job."""
    try:
        source = project.read(path)
        if not source.text.strip():
            return None
        if source.kind is Kind.PYTHON:
            from memlint.read.pyeval.grammar import parse as parse_python

            parse_python(source.text, path)
        elif source.kind is Kind.YAML:
            from memlint.read.yamldoc import read_yaml

            read_yaml(source)
        elif source.kind is Kind.JSON:
            from memlint.read.jsondoc import read_json

            read_json(source)
        elif source.kind is Kind.TOML:
            from memlint.read.tomldoc import read_toml

            read_toml(source)
        elif source.kind is Kind.NOTEBOOK:
            from memlint.read.notebook import read_notebook

            read_notebook(source)
    except ReadError as error:
        return error
    return None


def _embedded(source: Source, project: Project) -> Extraction:
    from memlint.launch.embedded import read_embedded

    return read_embedded(source, project)
