"""From paths to assessed runs: what `check`, `estimate`, `facts`, `diff` and `baseline` share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from memlint.cli import internal_error
from memlint.cli.failure import Failure
from memlint.comments import MARKER
from memlint.config import Configs, Settings, verify_comments
from memlint.config_file import ConfigError
from memlint.extract import Project, extract, malformed
from memlint.facts import TrainingRun
from memlint.paths import inside, posix
from memlint.source import ReadError, Source
from memlint.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from memlint.assess import Assessment

STDIN = "-"


class Read(NamedTuple):
    """One input after reading: its runs with their settings laid over them, or why it could not be read."""

    path: str
    settings: Settings
    runs: tuple[TrainingRun, ...] = ()
    errors: tuple[ReadError, ...] = ()


class Session:
    """One call of memlint. `layer` puts the command line over the settings of a file; `texts` stand in for files."""

    def __init__(
        self, configs: Configs, layer: Callable[[Settings], Settings], texts: Mapping[str, Source] | None = None
    ) -> None:
        self.configs = configs
        self.layer = layer
        self.texts: Mapping[str, Source] = texts or {}
        self._projects: dict[tuple[str, tuple[tuple[str, str], ...]], Project] = {}
        """By folder, and by root: each with the versions that settings pin."""

    def with_texts(self, texts: Mapping[str, Source]) -> Session:
        """The same call with other texts in the place of some files, and every other file read anew."""
        return Session(self.configs, self.layer, {**self.texts, **texts})

    def settings_for(self, path: str) -> Settings:
        """Configuration file, then command line; a configuration that cannot be read ends the command."""
        try:
            return self.layer(self.configs.settings_for(path))
        except ConfigError as error:
            raise Failure(str(error)) from None

    def project_for(self, path: str, settings: Settings) -> Project:
        """The project around a file; files of one repository share it, so linked files are read once."""
        pinned = tuple(sorted(settings.versions.items()))
        place = os.path.abspath(path)
        here = (place if os.path.isdir(place) else os.path.dirname(place), pinned)
        if here not in self._projects:
            project = Project.around(path, pinned=settings.versions)
            at_root = (project.root, pinned)
            if at_root not in self._projects:
                self._projects[at_root] = project.with_texts(self.texts) if self.texts else project
            self._projects[here] = self._projects[at_root]
        return self._projects[here]

    def read(self, path: str) -> Read:
        """The runs of one file. An error of ours while reading it is reported like an unreadable file."""
        settings = self.settings_for(path)
        project = self.project_for(path, settings)
        try:
            verify_comments(project.read(path))
            found = extract(path, project)
            return Read(path, settings, _overridden(found.runs, settings), found.errors)
        except ReadError as error:
            return Read(path, settings, errors=(error,))
        except ConfigError as error:
            return Read(path, settings, errors=(ReadError(error.message, error.path or path, error.line),))
        except Exception as error:
            return Read(path, settings, errors=(ReadError(internal_error(error), path),))

    def speaks(self, path: str) -> bool:
        """Whether a file holds a comment for memlint."""
        source = self.source(path)
        return source is not None and MARKER in source.text

    def malformed(self, path: str) -> list[ReadError]:
        """Why a named file that holds no training job does not even parse."""
        error = malformed(path, self.project_for(path, self.settings_for(path)))
        return [error] if error else []

    def troubles(self, found: Read) -> list[ReadError]:
        """What was wrong with a file that was named; not, what kept some cells of a notebook from being read."""
        errors = [error for error in found.errors if not error.partial]
        return errors or ([] if found.runs or found.errors else self.malformed(found.path))

    def root_of(self, path: str) -> str:
        """The folder that paths in baselines and fingerprints are relative to: the repository's, else where we are."""
        project = self.project_for(path, self.settings_for(path))
        return project.root if project.marked else os.getcwd()

    def relative(self, path: str) -> str:
        """A path as fingerprints and baselines know it, whatever folder memlint was started in."""
        return inside(os.path.abspath(path), self.root_of(path)) or posix(path)

    def source(self, path: str) -> Source | None:
        """The text of a path that a finding points into."""
        try:
            return self.project_for(path, self.settings_for(path)).read(path)
        except (ReadError, Failure):
            return None

    def assess(self, read: Read) -> tuple[list[Assessment], list[ReadError]]:
        """The runs of an input on their target card."""
        done: list[Assessment] = []
        if not read.runs:
            return done, []
        from memlint.assess import assess, target

        try:
            for run in read.runs:
                done.append(assess(run, target(run, read.settings), read.settings))
        except Exception as error:
            return done, [ReadError(internal_error(error), read.path)]
        return done, []


def _overridden(runs: tuple[TrainingRun, ...], settings: Settings) -> tuple[TrainingRun, ...]:
    """The runs with the values that a person set."""
    if not runs:
        return ()
    from memlint.assess import overridden

    return tuple(overridden(run, settings) for run in runs)


class Inputs(NamedTuple):
    """The files to look at. `named` were given by a person by name: they must be readable, others may be no training job."""

    files: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()
    excluded: int = 0


def gather(paths: Sequence[str], session: Session, *, force_exclude: bool = False) -> Inputs:
    """The files behind the paths of a command line, each once, in order.

    Files given by name are taken whatever excludes say, unless `force_exclude` (a pre-commit hook names every changed
    file); then names that memlint does not read are left out too. A missing path ends the command.
    """
    from memlint.discover import discover

    files: dict[str, bool] = {}
    excluded = 0
    for path in paths:
        if path in session.texts:
            files[path] = True
        elif os.path.isdir(path):
            for found in discover(path):
                if session.settings_for(found).excludes(found):
                    excluded += 1
                else:
                    files.setdefault(found, False)
        elif not os.path.exists(path):
            raise Failure(f"{path}: no such file or directory")
        elif force_exclude and (not _readable(path) or session.settings_for(path).excludes(path)):
            excluded += 1
        else:
            # A hook names whatever changed, templates included: nobody said that these are training jobs.
            files[path] = not force_exclude
    return Inputs(tuple(files), frozenset(path for path, named in files.items() if named), excluded)


def _readable(path: str) -> bool:
    from memlint.source import kind_of

    return kind_of(path) is not None


def from_stdin(paths: Sequence[str], filename: str | None) -> tuple[list[str], dict[str, Source]]:
    """`-` replaced by the name given for standard input, and the text to use for it."""
    if STDIN not in paths:
        if filename is not None:
            raise Failure("--stdin-filename goes with - as the path")
        return list(paths), {}
    import sys

    from memlint.source import Kind, decode, kind_of

    name = filename or "stdin.py"
    kind = kind_of(name)
    if kind is None:
        raise Failure(f"--stdin-filename {name}: not a name of a file that memlint reads (.py, .ipynb, .sh, .yaml, .json)")
    try:
        text = decode(sys.stdin.buffer.read(), name, kind or Kind.PYTHON)
    except ReadError as error:
        raise Failure(f"{error.path}:{error.line}: {error.message}") from None
    return [name if path == STDIN else path for path in paths], {name: Source(name, kind, text)}


def changed_since(revision: str, paths: Sequence[str]) -> list[str]:
    """The files below `paths` that differ from a git revision, untracked ones included; relative to where we are."""
    tracked = git("diff", "--name-only", "--relative", "--diff-filter=d", "-z", revision, "--", *paths)
    untracked = git("ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    return [path for path in dict.fromkeys((tracked + untracked).split("\0")) if path]


def git(*arguments: str) -> str:
    """What git prints; fails with git's own message."""
    import subprocess

    try:
        done = subprocess.run(["git", *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise Failure("git is not installed, and this needs it") from None
    if done.returncode:
        words = " ".join(done.stderr.decode("utf-8", "replace").split()) or f"exit {done.returncode}"
        raise Failure(f"git {arguments[0]}: {words}")
    return done.stdout.decode("utf-8", "surrogateescape")
