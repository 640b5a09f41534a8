"""`--help`, drawn by `argparse` from what a command declares."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from memlint.cli.arguments import Argument
from memlint.typed import Any

WIDTH = 78
"""Columns: those of a terminal of 80."""


def help_text(command: str, description: str, declared: Iterable[Argument]) -> str:
    """The usage, the description and a line or two for each argument."""
    parser = argparse.ArgumentParser(f"memlint {command}", description=description, formatter_class=_formatter)
    groups: dict[str, Any] = {"": parser}
    for argument in declared:
        group = groups.get(argument.group) or groups.setdefault(argument.group, parser.add_argument_group(argument.group))
        how: dict[str, Any] = {"action": argument.action, "help": argument.help}
        if argument.action != "store_true":
            how |= {"nargs": argument.nargs or None, "metavar": argument.metavar or None, "choices": argument.choices or None}
        if argument.action == "append":
            del how["choices"]
        group.add_argument(argument.name, **how)
    return parser.format_help()


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, width=WIDTH)
