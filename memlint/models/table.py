"""A data file of `key<TAB>value` lines sorted by key, looked up without reading it whole (a few dozen microseconds)."""

from __future__ import annotations

import os
from collections.abc import Iterator

DATA = os.path.join(os.path.dirname(__file__), "data")


def get(name: str, key: str) -> str | None:
    """The value stored under a key in `data/<name>`; None when there is none.

    The files are sorted by the bytes of the key and begin with a `#<TAB>` line that names their origin.
    """
    wanted = key.encode("utf-8", "replace")
    if b"\n" in wanted or b"\t" in wanted:
        return None
    with open(os.path.join(DATA, name), "rb") as file:
        low, high = 0, file.seek(0, os.SEEK_END)
        # Invariant: the line of the key, if present, starts in [low, high).
        while low < high:
            middle = (low + high) // 2
            file.seek(middle)
            if middle:
                file.seek(middle - 1)
                file.readline()
            start = file.tell()
            line = file.readline()
            found, _, value = line.partition(b"\t")
            if start >= high:
                high = middle
            elif found == wanted:
                return value.decode("utf-8").rstrip("\n")
            elif found < wanted:
                low = start + len(line)
            else:
                high = middle
    return None


def items(name: str) -> Iterator[tuple[str, str]]:
    """Every key and value of a data file, in order."""
    with open(os.path.join(DATA, name), encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#\t"):
                key, _, value = line.rstrip("\n").partition("\t")
                yield key, value


def origin(name: str) -> str:
    """What the first line of a data file says about where it comes from."""
    with open(os.path.join(DATA, name), "rb") as file:
        return file.readline().partition(b"\t")[2].decode("utf-8").strip()
