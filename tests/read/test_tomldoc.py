"""TOML as the standard library reads it, with places."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from memlint.read.document import plain
from memlint.read.tomldoc import read_toml
from memlint.source import Kind, ReadError, Source, Span

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib  # type: ignore[import-not-found, no-redef, unused-ignore]

TEXT = '''# c
a = 1_000 # x
"q.r" = 'lit\\n'
b.c = [1, 2.5, # k
  3e4,
]
s = """
line \\
   cont \\u0041 "x" """
d = {x=1, y.z = "t"}
raw = \'\'\'
C:\\new\'\'\'
[t]
k = true
[t.u]
v = -inf
[[l]]
n = 0x1F
[[l]]
n = 0o17
[l.sub]
w = 1e3
'''


def read(text: str) -> Any:
    return plain(read_toml(Source("c.toml", Kind.TOML, text)).root)


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n"), "", "# only\n", "a = 1", "[a]\n[b]\n", "x=nan"])
def test_it_reads_what_the_standard_library_reads(text: str) -> None:
    expected = tomllib.loads(text.replace("\r\n", "\n"))
    found = read(text)
    if "\r" in text:
        found["s"], found["raw"] = found["s"].replace("\r\n", "\n"), found["raw"].replace("\r\n", "\n")
    if "x" in expected and isinstance(expected["x"], float):
        assert math.isnan(found["x"])
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a = 1\na = 2\n", 2, 1), ("a = \n", 1, 5), ("a = yes\n", 1, 5), ('a = "x\n', 1, 5), ("a = [1, 2\n", 1, 10), ("[a\n", 1, 3),
        ("a = 1 b = 2\n", 1, 6), ("a = {x = 1\n", 1, 11), ("a.b = 1\na.b.c = 2\n", 2, 10), ("[[a]]\n[a.b]\nc = 1\n[[a.b]]\n", 4, 8),
        ("= 1\n", 1, 1), ("a = " + "[" * 200 + "\n", 1, 105),
    ],
)  # fmt: skip
def test_what_is_not_toml_is_refused_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    with pytest.raises(ReadError) as caught:
        read(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_values_and_keys_know_their_place() -> None:
    document = read_toml(Source("c.toml", Kind.TOML, TEXT))
    node = document.at("t.u.v")
    assert node is not None
    assert node.span == Span("c.toml", 16, 5, 16, 9)
    entry = next(entry for entry in document.mapping.entries if entry.key == "t")
    assert entry.key_span == Span("c.toml", 13, 2, 13, 3)
    assert entry.value.span == Span("c.toml", 13, 1, 16, 9)


def test_damaged_text_never_gives_other_values() -> None:
    """What both readers take, they take alike (tables opened twice are let pass here)."""
    chosen = random.Random(7)
    agreed = 0
    for _ in range(600):
        text = list(TEXT)
        for _ in range(chosen.randint(1, 3)):
            text[chosen.randrange(len(text))] = chosen.choice("[]{}=\"',.#\n a1")
        try:
            expected = tomllib.loads("".join(text))
        except tomllib.TOMLDecodeError:
            try:
                read("".join(text))
            except ReadError:
                continue
            continue
        if "nan" not in repr(expected):
            assert read("".join(text)) == expected
            agreed += 1
    assert agreed > 50
