"""From a file to its training runs: the one door to every reader.

`extract` looks at what a file is, calls the reader for it, and lays the values that people state beside the code over
the result: `# memlint:` comments first, `--set` last.
"""

from __future__ import annotations

from memlint.facts import Extraction
from memlint.project import Project
from memlint.source import Kind, ReadError, Source, kind_of

__all__ = ["Project", "extract"]


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
    if not found.runs or not project.overrides:
        return found
    return Extraction(tuple(run.with_values(project.overrides, "--set") for run in found.runs), found.errors)


def _dispatch(source: Source, project: Project) -> Extraction:
    """Readers are imported when a file needs them: a YAML file must not pay for the Python interpreter."""
    if source.kind in (Kind.YAML, Kind.JSON):
        from memlint.dialects import read_config

        return read_config(source, project)
    if source.kind is Kind.PYTHON:
        from memlint.frameworks import read_script

        return read_script(source, project)
    if source.kind is Kind.SHELL:
        from memlint.launch import read_launch

        return read_launch(source, project)
    if source.kind is Kind.NOTEBOOK:
        from memlint.launch.notebooks import read_notebook_runs

        return read_notebook_runs(source, project)
    return Extraction()
