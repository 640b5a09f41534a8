"""Paths are strings: what a check needs of them beside `os.path`; `pathlib` takes as long to load as a script takes to read."""

from __future__ import annotations

import os
from collections.abc import Iterator


def above(folder: str) -> Iterator[str]:
    """An absolute folder, then each one above it, up to the root."""
    yield folder
    while (parent := os.path.dirname(folder)) != folder:
        yield parent
        folder = parent


def inside(path: str, folder: str) -> str | None:
    """The way from a folder to a path below it, both absolute, with posix separators; "." for itself, None when it is elsewhere."""
    if path == folder:
        return "."
    start = folder if folder.endswith(os.sep) else folder + os.sep
    return path[len(start) :].replace(os.sep, "/") if path.startswith(start) else None


def posix(path: str) -> str:
    """A path with posix separators, and without what says nothing: doubled slashes, `./`, a slash at the end."""
    path = path.replace(os.sep, "/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/" * path.startswith("/") + "/".join(parts) or "."


def folder_of(path: str) -> str:
    """The folder of a path as a script computes it from its own place: above the place where it is run it goes on with `..`."""
    if path in {"", "."}:
        return ".."
    return f"{path}/.." if path.endswith("..") else path.rpartition("/")[0] or "/" * path.startswith("/")


def shown(path: str) -> str:
    """An absolute path as a person wants to read it: relative to the working directory when it lies below; others as they are."""
    return (inside(path, os.getcwd()) or posix(path)) if os.path.isabs(path) else path.replace(os.sep, "/")


def expanded(path: str) -> str:
    """A path with `~` replaced, where there is such a home."""
    return os.path.expanduser(path) if path.startswith("~") else path


def text_of(path: str, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The text of a file. Raises `OSError` and `UnicodeDecodeError`."""
    with open(path, encoding=encoding, errors=errors) as file:
        return file.read()
