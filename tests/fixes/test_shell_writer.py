"""Splices in launch commands; the expected scripts are written out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.facts import Site
from memlint.fixes.edit import apply
from memlint.fixes.shell_writer import set_keys, set_value, states
from memlint.source import Kind, Source, Span


def edited(text: str, values: dict[str, Any], dialect: str = "hf_arguments", line: int = 1) -> str | None:
    source = Source("run.sh", Kind.SHELL, text)
    edits = set_keys(source, Site(dialect, "shell", Span("run.sh", line, 1)), values)
    return None if edits is None else apply(text, edits)


CASES = {
    "a value": ("python t.py --bs 8 --lr 1\n", {"bs": 4}, "python t.py --bs 4 --lr 1\n"),
    "joined by =": ("python t.py --bs=8\n", {"bs": 4}, "python t.py --bs=4\n"),
    "dashes for underscores": ("python t.py --train-bs 8\n", {"train_bs": 4}, "python t.py --train-bs 4\n"),
    "quoted": ("python t.py --bs '8' --o \"x\"\n", {"bs": 4, "o": "y"}, "python t.py --bs '4' --o \"y\"\n"),
    "a default inside": ('python t.py --bs ${BS:-8} "$@"\n', {"bs": 4}, 'python t.py --bs ${BS:-4} "$@"\n'),
    "the last of two counts": ("python t.py --bs 8 --bs 16\n", {"bs": 4}, "python t.py --bs 8 --bs 4\n"),
    "lower-case booleans": ("python t.py --gc false\n", {"gc": True}, "python t.py --gc true\n"),
    "a new flag": ("python t.py --bs 8\n", {"gc": True}, "python t.py --bs 8 --gc True\n"),
    "a new flag like the others": ("python t.py --bs=8 --lr=1\n", {"gc": True}, "python t.py --bs=8 --lr=1 --gc=True\n"),
    "overrides": ("tune run r --config c bs=8\n", {"gc": True}, "tune run r --config c bs=8 gc=True\n"),
    "before what is passed on": ('python t.py --bs 8 "$@"\n', {"gc": True}, 'python t.py --bs 8 --gc True "$@"\n'),
    "before redirections": ("python t.py --bs 8 > log 2>&1\n", {"gc": 1}, "python t.py --bs 8 --gc 1 > log 2>&1\n"),
    "in a pipe, in a background": ("python t.py --bs 8 | tee l &\n", {"gc": 1}, "python t.py --bs 8 --gc 1 | tee l &\n"),
    "continued lines": (
        "python t.py \\\n    --bs 8 \\\n    --lr 1\necho done\n",
        {"gc": True, "ga": 2},
        "python t.py \\\n    --bs 8 \\\n    --lr 1 \\\n    --gc True \\\n    --ga 2\necho done\n",
    ),
    "on already": ("python t.py --gc --bs 8\n", {"gc": True}, "python t.py --gc --bs 8\n"),
    "CRLF": ("python t.py \\\r\n  --bs 8\r\n", {"bs": 4, "gc": 1}, "python t.py \\\r\n  --bs 4 \\\r\n  --gc 1\r\n"),
    "text that needs quotes": ("python t.py\n", {"o": "a b"}, "python t.py --o 'a b'\n"),
}


@pytest.mark.parametrize(("text", "values", "expected"), CASES.values(), ids=CASES)
def test_set_flags(text: str, values: dict[str, Any], expected: str) -> None:
    assert edited(text, values) == expected
    assert edited(expected, values) == expected, "fixing twice changes nothing"


REFUSED = {
    "a value from a variable": ("python t.py --bs $BS\n", {"bs": 4}),
    "a value of another type": ("python t.py --bs auto\n", {"bs": 4}),
    "a flag without a value": ("python t.py --gc --bs 8\n", {"gc": False}),
    "no command there": ("# nothing\n", {"bs": 4}),
    "not a shell script": ("python t.py 'open\n", {"bs": 4}),
}


@pytest.mark.parametrize(("text", "values"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, values: dict[str, Any]) -> None:
    assert edited(text, values) is None


def test_flags_of_the_launcher_go_before_the_script() -> None:
    text = "accelerate launch --num_processes 2 t.py --bs 8\n"
    expected = "accelerate launch --mixed_precision bf16 --num_processes 2 t.py --bs 8\n"
    assert edited(text, {"mixed_precision": "bf16"}, "accelerate") == expected


def test_a_word_at_a_place() -> None:
    source = Source("run.sh", Kind.SHELL, "BS=8\npython t.py --bs $BS\n")
    edits = set_value(source, Span("run.sh", 1, 4, 1, 5), 4)
    assert edits is not None
    assert apply(source.text, edits) == "BS=4\npython t.py --bs $BS\n"


def test_states() -> None:
    source = Source("run.sh", Kind.SHELL, "python t.py --train-bs 8 lr=1\n")
    site = Site("hf_arguments", "shell", Span("run.sh", 1, 1))
    assert [name for name in ("train_bs", "lr", "gc") if states(source, site, name)] == ["train_bs", "lr"]
