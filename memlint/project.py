"""The project around the linted files: where links between files lead, and each file read once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from memlint.paths import above, inside, posix
from memlint.source import Kind, ReadError, Source, kind_of, read
from memlint.versions import Pin

ROOT_MARKERS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
VARIABLE = r"\$\{?\w+\}?/+"
"""A variable in front of a path."""
MAX_SEARCHED = 20_000
"""Files that are looked through for one whose path ends as a link does."""
PASSED_OVER = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "wandb", "outputs", "checkpoints"})
"""Folders that hold nothing a launch leads to."""
MAX_PARENTS = 6
"""How far up links are followed when nothing marks the project's root."""


class Project:
    """What surrounds the files of one memlint call. Create it with `Project.around(path)`; it reads lazily.

    `pinned` are library versions stated by hand (`[tool.memlint] versions`), library name to version text, or by a notebook.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        pinned: Mapping[str, str | Pin] | None = None,
        marked: bool = True,
        texts: dict[str, Source] | None = None,
    ) -> None:
        self.root = os.fspath(root)
        self.pinned: Mapping[str, str | Pin] = {} if pinned is None else pinned
        self.marked = marked
        """False when no `.git` or `pyproject.toml` marks the root."""
        self._texts: dict[str, Source] = {} if texts is None else texts
        self._names: dict[str, list[str]] = {}
        """The project's files by name, once something is searched for."""

    @classmethod
    def around(cls, path: str, *, pinned: Mapping[str, str] | None = None) -> Project:
        """The project that a file or directory belongs to: the nearest one upward with `.git`, else `pyproject.toml`.

        A repository wins over a package inside it, because launch lines are written for the repository's root.
        """
        start = os.path.abspath(path)
        folders = list(above(start if os.path.isdir(start) else os.path.dirname(start)))
        marker = next((p for p in folders if os.path.exists(os.path.join(p, ".git"))), None) or next(
            (p for p in folders if any(os.path.exists(os.path.join(p, name)) for name in ROOT_MARKERS)), None
        )
        root = marker or folders[min(MAX_PARENTS, max(len(folders) - 2, 0))]
        return cls(root, dict(pinned or {}), marker is not None)

    def with_texts(self, sources: Mapping[str, Source]) -> Project:
        """The same project in which some files have another text (standard input, a heredoc, `%%writefile`)."""
        added = {_key(path): source for path, source in sources.items()}
        return Project(self.root, self.pinned, self.marked, {**self._texts, **added})

    def with_pins(self, pins: Mapping[str, Pin]) -> Project:
        """The same project with versions that a file states for itself; those stated by hand win."""
        return Project(self.root, {**pins, **self.pinned}, self.marked, self._texts) if pins else self

    def read(self, path: str, kind: Kind | None = None) -> Source:
        """A file's text, read once. Raises `ReadError`."""
        key = _key(path)
        source = self._texts.get(key)
        if source is None or (kind is not None and source.kind is not kind):
            source = self._texts[key] = read(path, kind)
        return source

    def text(self, path: str) -> str | None:
        """The text of a file of any kind (a hostfile), or None when it cannot be read."""
        try:
            return self.read(path, kind_of(path) or Kind.SHELL).text
        except ReadError:
            return None

    def exists(self, path: str) -> bool:
        """Whether `path` is a regular file, or a text given in its place."""
        return _key(path) in self._texts or os.path.isfile(path)

    def resolve(self, link: str, from_path: str, *, directory: str | None = None) -> str | None:
        """The file that `link`, written in `from_path`, leads to, or None.

        Tried in order: the launch's own `directory` (after a `cd`), the linking file's directory, each of its parents
        up to the root, the working directory. Links out of the project are not followed. The path returned is relative
        when `from_path` is.
        """
        if not link or "\0" in link or len(link) > 1024 or link.startswith("~"):
            return None
        here = os.path.dirname(os.path.abspath(from_path))  # `..` in the path is folded without touching links
        working = os.getcwd()
        tops = (self.root, working)
        parents = [folder for folder in above(here) if inside(folder, self.root)] or [here]
        launch = [os.path.join(here, directory), os.path.join(self.root, directory)] if directory else []
        for base in (*launch, *parents, working):
            target = os.path.normpath(os.path.join(base, link))
            if any(inside(target, top) for top in (*tops, here)) and self.exists(target):
                return _written_as(from_path, target)
        variable = re.match(VARIABLE, link)
        if variable is not None:
            end = link[variable.end() :]
            return self.resolve(end, from_path, directory=directory) or self._ending(end, from_path)
        if link.startswith("/") and 1 < link.count("/") < 16:
            # A path of a container or another machine: the repository is mounted somewhere there.
            return self.resolve(link[link.index("/", 1) + 1 :], from_path) or self.resolve(link[link.index("/", 1) :], from_path)
        return None

    def _ending(self, end: str, from_path: str) -> str | None:
        """The one file of the project whose path ends so, or None."""
        if not self.marked:
            return None
        if not self._names:
            seen = 0
            for folder, folders, files in os.walk(self.root):
                folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in PASSED_OVER)
                for file in files:
                    self._names.setdefault(file, []).append(os.path.join(folder, file))
                seen += len(files)
                if seen > MAX_SEARCHED:
                    break
        found = [path for path in self._names.get(end.rpartition("/")[2], ()) if path.endswith(f"/{end}")]
        if len(found) != 1:
            return None
        return _written_as(from_path, found[0])

    def read_link(
        self, link: str, from_path: str, *, directory: str | None = None, otherwise: Kind | None = None
    ) -> Source | None:
        """The text that a link leads to, or None when it leads nowhere or to a file of an unknown kind (`otherwise` is its kind)."""
        path = self.resolve(link, from_path, directory=directory)
        if path is None:
            return None
        try:
            return self.read(path, kind_of(path) or otherwise)
        except ReadError:
            return None


def _written_as(from_path: str, target: str) -> str:
    """A path as the linking file's is written: absolute, or relative to where we are."""
    return target if os.path.isabs(from_path) else posix(os.path.relpath(target))


def _key(path: str) -> str:
    return os.path.abspath(path)  # one spelling per file; links are not followed
