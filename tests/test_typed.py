"""Records made without `typing` behave as those of `typing.NamedTuple`."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest

from memlint import typed


class Ours(typed.NamedTuple):
    """A record."""

    path: str
    line: int = 1
    """What comes after a field is no field."""
    cell: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        """A member that is no field."""
        return f"{self.path}:{self.line}"


class Theirs(typing.NamedTuple):
    path: str
    line: int = 1
    cell: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


BOTH: tuple[Any, ...] = (Ours, Theirs)


@pytest.mark.parametrize(
    "ask",
    [
        lambda record: tuple(record("a.py")),
        lambda record: tuple(record("a.py", cell=(2,))),
        lambda record: tuple(record(line=3, path="b")),
        lambda record: record("a.py", 7).place,
        lambda record: (record("a", 2).path, record("a", 2).line, record("a", 2).cell),
        lambda record: tuple(record("a", 2)._replace(line=4, path="b")),
        lambda record: record("a", 2)._asdict(),
        lambda record: tuple(record._make(["a", 1, ()])),
        lambda record: record._fields,
        lambda record: record.__match_args__,
        lambda record: record.__bases__,
        lambda record: repr(record("a", 2)).partition("(")[2],
        lambda record: record("a") == record("a", 1, ()),
        lambda record: record("a", 2) == ("a", 2, ()),
        lambda record: sorted([record("b"), record("a", 2), record("a", 1)]),
        lambda record: len({record("a"), record("a")}),
        lambda record: tuple(copy.deepcopy(record("a", 2))),
        lambda record: pickle.loads(pickle.dumps(record("a", 2))) == record("a", 2),
        lambda record: hasattr(record("a"), "__dict__"),
    ],
)
def test_what_a_record_answers(ask: Callable[[Any], object]) -> None:
    ours, theirs = map(ask, BOTH)
    assert ours == theirs


@pytest.mark.parametrize(
    "wrong",
    [
        lambda record: record(),
        lambda record: record("a", 1, (), 4),
        lambda record: record("a", column=2),
        lambda record: record("a", path="b"),
        lambda record: record("a")._replace(column=2),
        lambda record: setattr(record("a"), "line", 2),
        lambda record: setattr(record("a"), "column", 2),
    ],
)
def test_what_a_record_refuses(wrong: Callable[[Any], object]) -> None:
    refused = []
    for record in BOTH:
        with pytest.raises((TypeError, ValueError, AttributeError)) as raised:
            wrong(record)
        refused.append(raised.type)
    # Python 3.13 made an unknown field of `_replace` a TypeError.
    assert refused[0] is refused[1] or set(refused) == {TypeError, ValueError}


def test_a_record_can_be_matched() -> None:
    match Ours("a", 2):
        case Ours(path, line):
            assert (path, line) == ("a", 2)
