"""Command lines mean what `argparse` takes them to mean, and fail with its words."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

import pytest

from memlint.cli.arguments import BadValue, Parser
from memlint.cli.failure import Failure


class Reference(argparse.ArgumentParser):
    """The library's parser, failing as ours does."""

    def error(self, message: str) -> NoReturn:
        raise Failure(f"{message} (see memlint check --help)")


def count(text: str) -> int:
    if not text.isdecimal():
        raise BadValue(f"no number: {text!r}")
    return int(text)


def library_count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"no number: {text!r}")
    return int(text)


def declare(parser: Any, number: Any) -> None:
    parser.add_argument("action", choices=["show", "write"])
    parser.add_argument("paths", nargs="*", default=["."], metavar="PATH")
    parser.add_argument("--format", action="append", default=[], metavar="FORMAT")
    group = parser.add_argument_group("others")
    group.add_argument("--gpus", type=number, metavar="N")
    group.add_argument("--exit-zero", action="store_true")
    group.add_argument("--fail-on", choices=["error", "warning"])


def outcome(parser: Any, line: list[str]) -> object:
    try:
        return vars(parser.parse_args(line))
    except Failure as failure:
        return str(failure)


@pytest.mark.parametrize(
    "line",
    [
        "show",
        "show a b --gpus 2 --exit-zero",
        "--gpus=2 show - --format json --format=sarif=out.sarif",
        "--fail-on warning show -- --gpus -x",
        "show --fail-on info",
        "show --gpus two",
        "show --gpus -1",
        "show --gpus",
        "show --gpus --exit-zero",
        "show --exit-zero=yes",
        "show a --bogus --gpu",
        "show -x",
        "hide",
        "",
        "--exit-zero",
    ],
)
def test_a_line_means_what_argparse_takes_it_to_mean(line: str) -> None:
    ours, reference = Parser("check", "Lint."), Reference("memlint check", allow_abbrev=False)
    declare(ours, count)
    declare(reference, library_count)
    assert outcome(ours, line.split()) == outcome(reference, line.split())


def test_paths_may_stand_on_both_sides_of_an_option() -> None:
    parser = Parser("check", "Lint.")
    declare(parser, count)
    assert vars(parser.parse_args(["show", "a", "--gpus", "2", "b"]))["paths"] == ["a", "b"]
