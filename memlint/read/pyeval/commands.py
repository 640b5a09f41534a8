"""Command lines of functions and dataclasses: click, typer, fire, tyro, absl, fastcore, Hydra; and the door to argparse.

`CommandLines` is the `Library` that knows command lines and configuration files; the framework models build on it.
"""

from __future__ import annotations

from memlint.facts import Fact
from memlint.read.pyeval.argument_parsers import PARSERS, new_parser, parser_method
from memlint.read.pyeval.documents import load_document
from memlint.read.pyeval.files import file_method, is_open_file
from memlint.read.pyeval.machine import Library, Machine
from memlint.read.pyeval.values import Call, Instance, Symbol


class CommandLines(Library):
    """Models of command-line parsers and of YAML and JSON loading."""

    def call(self, machine: Machine, name: str, call: Call) -> Fact | None:
        """See `Library.call`."""
        tail = name.rpartition(".")[2]
        if tail in PARSERS:
            return new_parser(machine, name, call)
        if tail in {"safe_load", "load", "full_load", "unsafe_load", "loads"} and name.split(".")[0] in {"yaml", "json", "omegaconf"}:
            return load_document(machine, call.args[0], call.span) if call.args else None
        return None

    def method(self, machine: Machine, owner: Fact, name: str, call: Call) -> Fact | None:
        """See `Library.method`."""
        value = owner.value
        if isinstance(value, Instance) and isinstance(value.cls, Symbol):
            if is_open_file(value):
                return file_method(machine, value, name, call)
            tail = value.cls.name.rpartition(".")[2]
            if tail in PARSERS or tail == "SubParsers":
                return parser_method(machine, value, name, call)
        return None
