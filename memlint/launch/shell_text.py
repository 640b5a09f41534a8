"""Shell text that stands in another kind of file."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.launch import slurm
from memlint.read.shell import Joined, Lines, Value
from memlint.typed import NamedTuple


class Shell(NamedTuple):
    """The text, with the variables around it and what its job asks for."""

    text: Joined | Lines
    environment: Mapping[str, Value]
    allocation: slurm.Options
