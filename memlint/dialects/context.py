"""What a dialect may need beside its own facts: the versions in force, and the files that its values link to."""

from __future__ import annotations

from memlint.dialects.derive import Facts, Native
from memlint.facts import Fact, Problem, Site
from memlint.read.document import Document
from memlint.source import ReadError, Source
from memlint.typed import Any, Protocol
from memlint.versions import Versions


class Links(Protocol):
    """The part of `memlint.project.Project` that dialects use."""

    def read_link(self, link: str, from_path: str, *, directory: str | None = None) -> Source | None:
        """The text that a link leads to, or None."""


class Context:
    """The surroundings of one configuration. Collects what the dialect finds beside facts."""

    def __init__(
        self,
        versions: Versions | None = None,
        path: str = "",
        project: Links | None = None,
        directory: str | None = None,
        files: list[str] | None = None,
        sites: list[Site] | None = None,
        problems: list[Problem] | None = None,
    ) -> None:
        self.versions = versions or Versions()
        self.path = path
        """The file that links are written in."""
        self.project = project
        self.directory = directory
        """The working directory of the launch, if it changed it."""
        self.files: list[str] = [] if files is None else files
        self.sites: list[Site] = [] if sites is None else sites
        self.problems: list[Problem] = [] if problems is None else problems

    def follow(self, link: Fact | None) -> Document | None:
        """The document that a path-valued fact leads to, or None when it leads nowhere or is not readable."""
        if link is None or not link.known or not isinstance(link.value, str) or self.project is None:
            return None
        try:
            source = self.project.read_link(link.value, self.path, directory=self.directory)
            document = first_document(source) if source is not None else None
        except ReadError:
            return None
        if document is not None:
            self.files.append(document.path)
        return document

    def at(self, path: str) -> Context:
        """The same context for links that stand in another file; what it collects is collected here."""
        return Context(self.versions, path, self.project, self.directory, self.files, self.sites, self.problems)

    def note(self, problems: tuple[Problem, ...]) -> None:
        """Add problems."""
        self.problems.extend(problems)


class Dialect(Protocol):
    """What every configuration dialect module offers.

    Where its files come in several forms (FSDP or DeepSpeed, names of another version), it may also offer `alternatives(key, value)`:
    further ways to say what `write` says, tried until the file, read again, says it.
    """

    NAME: str
    FRAGMENT: bool
    """The file alone is only a part of a run (a launcher's or an engine's configuration)."""
    INTERPOLATES: bool
    """The framework resolves `${...}` (OmegaConf)."""

    def recognise(self, document: Document) -> str | None:
        """Why a document is of this dialect, or None."""

    def facts(self, native: Native, context: Context | None = None) -> Facts:
        """Canonical facts of the flattened document, defaults included."""

    def write(self, key: str, value: Any) -> list[tuple[str, Any]] | None:
        """Canonical -> native keys and values; None where the dialect cannot say it."""


def first_document(source: Source) -> Document | None:
    """The first document of a YAML, JSON or TOML text. Raises `ReadError`."""
    if source.path.endswith(".toml"):
        from memlint.read.tomldoc import read_toml

        return read_toml(source)
    if source.path.endswith((".json", ".conf")):
        from memlint.read.jsondoc import read_json

        return read_json(source)
    from memlint.read.yamldoc import read_yaml

    documents = read_yaml(source)
    return documents[0] if documents else None
