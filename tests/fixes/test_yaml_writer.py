"""YAML splices: PyYAML's own loader says what the new text means, and the old lines say what must not change."""

from __future__ import annotations

import copy
import difflib
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memlint.facts import Site
from memlint.fixes.edit import apply
from memlint.fixes.yaml_writer import remove_key, set_key, set_value, states
from memlint.source import Kind, Source, Span


def edited(text: str, key: str, value: Any, pointer: str = "", line: int = 1) -> str | None:
    edits = set_key("x.yaml", text, pointer, key, value, line)
    return None if edits is None else apply(text, edits)


CASES = {
    "plain value, comment kept": ("a: 1\nb: 4   # four\nc: 3\n", "b", 2, "a: 1\nb: 2   # four\nc: 3\n"),
    "quotes kept": ("a: \"x\"\nb: 'y'\n", "b", "z", "a: \"x\"\nb: 'z'\n"),
    "quotes where they are needed": ("a: x\n", "a", "1e3: yes", "a: '1e3: yes'\n"),
    "text that looks like a number": ("a: x\n", "a", "12", "a: '12'\n"),
    "capital booleans kept": ("a: True\n", "a", False, "a: False\n"),
    "new booleans like the others": ("a: True\nb: False\n", "c", True, "a: True\nb: False\nc: True\n"),
    "1e-5 is text in YAML 1.1, so a dot goes in": ("lr: 0.1\n", "lr", 1e-05, "lr: 1.0e-05\n"),
    "a value that is not there": ("a:  # why\nb: 1\n", "a", 2, "a: 2  # why\nb: 1\n"),
    "new key after the last, before the last comment": ("a: 1\n# end\n", "b", 2, "a: 1\nb: 2\n# end\n"),
    "no newline at the end": ("a: 1", "b", 2, "a: 1\nb: 2"),
    "CRLF": ("a: 1\r\nb: 2\r\n", "c", True, "a: 1\r\nb: 2\r\nc: true\r\n"),
    "in a nested mapping": ("o:\n    a: 1  # x\nb: 2\n", "o.c", 3, "o:\n    a: 1  # x\n    c: 3\nb: 2\n"),
    "a new nested mapping, indented like the others": (
        "o:\n    a: 1\nb: 2\n",
        "p.q.r",
        "x",
        "o:\n    a: 1\nb: 2\np:\n    q:\n        r: x\n",
    ),
    "an empty mapping is filled": ("o:  # none yet\nb: 2\n", "o.a", 1, "o:  # none yet\n  a: 1\nb: 2\n"),
    "flow mapping": ("o: {a: 1, b: 2}  # x\n", "o.c", [1, "y"], "o: {a: 1, b: 2, c: [1, y]}  # x\n"),
    "flow mapping, value replaced": ("o: {a: 1, b: 2}\n", "o.a", None, "o: {a: null, b: 2}\n"),
    "flow mapping over lines with a comma at its end": (
        "o: {\n  a: 1,  # one\n  b: 2,\n}\n",
        "o.c",
        3,
        "o: {\n  a: 1,  # one\n  b: 2, c: 3,\n}\n",
    ),
    "empty flow mapping": ("o: {}\n", "o.a.b", 1, "o: {a: {b: 1}}\n"),
    "a list gets an item more": (
        "p:\n  - x.A  # first\n  - x.B\nb: 1\n",
        "p",
        ["x.A", "x.B", "x.C"],
        "p:\n  - x.A  # first\n  - x.B\n  - x.C\nb: 1\n",
    ),
    "a list that is not indented": ("p:\n- a\nb: 1\n", "p", ["a", "c"], "p:\n- a\n- c\nb: 1\n"),
    "a flow list": ("p: [q, v]\n", "p", ["q", "v", "k"], "p: [q, v, k]\n"),
    "after a block text": ("a: |\n  text\n\n\n# c\n", "b", 1, "a: |\n  text\nb: 1\n\n\n# c\n"),
    "the last of two equal keys counts": ("a: 1\na: 2\n", "a", 3, "a: 1\na: 3\n"),
    "a key with a dot in it": ("x.y: 1\n", "x.y", 2, "x.y: 2\n"),
    "astral characters before the place": ("n: 😀\nb: 1\n", "b", 2, "n: 😀\nb: 2\n"),
    "a merged key is overridden where it is used": (
        "d: &d {a: 1}\ne:\n  <<: *d\n  b: 2\n",
        "e.a",
        7,
        "d: &d {a: 1}\ne:\n  <<: *d\n  b: 2\n  a: 7\n",
    ),
    "an alias becomes a merge with an override": (
        "d: &d {a: 1}\nf: *d\ng: 1\n",
        "f.a",
        7,
        "d: &d {a: 1}\nf:\n  <<: *d\n  a: 7\ng: 1\n",
    ),
    "an aliased value is replaced where it is used": ("a: &a 1\nb: *a\n", "b", 2, "a: &a 1\nb: 2\n"),
}


@pytest.mark.parametrize(("text", "key", "value", "expected"), CASES.values(), ids=CASES)
def test_set(text: str, key: str, value: Any, expected: str) -> None:
    assert edited(text, key, value) == expected
    assert edited(expected, key, value) == expected, "fixing twice changes nothing"


REFUSED = {
    "the anchor that others share": ("a: &a 1\nb: *a\n", "a", 2),
    "a key of a shared mapping": ("d: &d\n  a: 1\nf: *d\n", "d.a", 2),
    "a block text": ("a: |\n  x\n", "a", "y"),
    "a mapping replaced by a value": ("a:\n  b: 1\n", "a", 1),
    "a key below a value": ("a: 1\n", "a.b", 1),
    "a list whose items would go": ("a:\n  - x\n  - y\n", "a", ["y"]),
    "a value with a tag of its own": ("a: !ENV x\n", "a", "y"),
    "an empty file": ("", "a", 1),
    "a list at the root": ("- a\n", "a", 1),
    "not YAML": ("a: [1\n", "a", 1),
}


@pytest.mark.parametrize(("text", "key", "value"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, key: str, value: Any) -> None:
    assert edited(text, key, value) is None


def test_the_document_is_chosen_by_its_line() -> None:
    text = "a: 1\n---\n# two\na: 2\nb: 3\n"
    assert edited(text, "a", 9, line=4) == "a: 1\n---\n# two\na: 9\nb: 3\n"
    assert edited(text, "c", 9, line=1) == "a: 1\nc: 9\n---\n# two\na: 2\nb: 3\n"


def test_a_pointer_leads_through_lists() -> None:
    text = "runs:\n  - a: 1\n  - a: 2  # x\n"
    assert edited(text, "a", 5, "runs.1") == "runs:\n  - a: 1\n  - a: 5  # x\n"
    assert edited(text, "b", 5, "runs.0") == "runs:\n  - a: 1\n    b: 5\n  - a: 2  # x\n"


def test_a_mapping_sets_its_keys() -> None:
    text = "o:\n  a: 1  # one\n"
    assert edited(text, "o", {"a": 2, "b": {"c": 3}}) == "o:\n  a: 2  # one\n  b:\n    c: 3\n"


def test_set_value_at_a_place_keeps_the_type() -> None:
    source = Source("x.yaml", Kind.YAML, "a: 1\no:\n  flag: true  # c\n")
    place = Span("x.yaml", 3, 9, 3, 13)
    edits = set_value(source, place, False)
    assert edits is not None
    assert apply(source.text, edits) == "a: 1\no:\n  flag: false  # c\n"
    assert set_value(source, place, "off") is None
    assert set_value(source, Span("x.yaml", 3, 9, 3, 12), False) is None


def test_states() -> None:
    source = Source("x.yaml", Kind.YAML, "d: &d {a: 1}\no:\n  <<: *d\n  b: 1\n")
    site = Site("axolotl", "yaml", Span("x.yaml", 1), "o")
    assert states(source, site, "b")
    assert not states(source, site, "a"), "merged, not stated"


def test_remove() -> None:
    text = "a: 1\nb: 2  # gone with it\n# stays\nc: 3\n"
    edits = remove_key("x", text, "", "b")
    assert edits is not None
    assert apply(text, edits) == "a: 1\n# stays\nc: 3\n"
    assert remove_key("x", text, "", "z") == ()
    assert remove_key("x", "o:\n  a: 1\n", "", "o.a") is None, "an empty mapping would be left"
    assert remove_key("x", "o: {a: 1, b: 2}\n", "o", "a") is None


# Properties ----------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["alpha", "beta", "gamma_x", "delta-y", "epsilon", "zeta"])
VALUES = st.one_of(
    st.booleans(),
    st.integers(-5, 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(alphabet="abz01 .:#'\"-_{}[],&*!%@`|>é😀", max_size=8),
    st.sampled_from(["bfloat16", "yes", "null", "~", "1e-4", "0x1F", "12:30", "2024-01-01", "<<", "=", "$HOME/x", "a\tb"]),
    st.lists(st.sampled_from(["q_proj", "v_proj", "k: x"]), max_size=3),
)
COMMENTS = st.sampled_from(["", "  # note", "    # 100 % sure: yes"])


@st.composite
def mappings(draw: st.DrawFn, indent: int = 0, depth: int = 0) -> list[str]:
    """The lines of a block mapping in one of the many ways people write one."""
    lines: list[str] = []
    pad = " " * indent
    for name in draw(st.lists(NAMES, min_size=1, max_size=5, unique=True)):
        if draw(st.booleans()):
            lines.extend(draw(st.sampled_from([[""], [f"{pad}# about {name}"], ["", f"{pad}# ---- {name}", ""]])))
        kind = draw(st.sampled_from(["plain", "single", "double", "flow", "list", "nested", "empty", "number", "bool"]))
        comment = draw(COMMENTS)
        if kind == "nested" and depth < 2:
            lines.append(f"{pad}{name}:{comment}")
            lines.extend(draw(mappings(indent + draw(st.sampled_from([2, 4])), depth + 1)))
        elif kind == "list":
            lines.append(f"{pad}{name}:{comment}")
            lines.extend(f"{pad}  - item{index}{comment}" for index in range(draw(st.integers(1, 3))))
        else:
            written = {
                "plain": "some text", "single": "'it''s'", "double": '"a\\tb"', "flow": "{p: 1, q: [x, y]}",
                "nested": "[a, b]", "empty": "", "number": "1.5e-3", "bool": "True",
            }[kind]  # fmt: skip
            lines.append(f"{pad}{name}: {written}{comment}".rstrip())
    return lines


def comments(text: str) -> list[str]:
    """The generated comments (no generated value contains ` # ` or starts a line with `#`)."""
    return re.findall(r"(?:^| )(# (?:about|----|note|100)[^\r\n]*)", text, re.MULTILINE)


def paths(data: Any, prefix: str = "") -> list[str]:
    found = []
    for key, value in data.items():
        found.append(prefix + key)
        if isinstance(value, dict):
            found.extend(paths(value, f"{prefix}{key}."))
    return found


def expected(data: Any, path: str, value: Any) -> Any:
    data = copy.deepcopy(data)
    *above, leaf = path.split(".")
    inner = data
    for name in above:
        if inner.get(name) is None:
            inner[name] = {}
        inner = inner[name]
    inner[leaf] = value
    return data


def is_kept(old: list[str], new: list[str]) -> bool:
    """True when at most one line of the old text is gone."""
    gone = [op for op in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if op[0] in ("replace", "delete")]
    return sum(op[2] - op[1] for op in gone) <= 1


@given(mappings(), VALUES, st.data(), st.sampled_from(["\n", "\r\n"]))
def test_replacing(lines: list[str], value: Any, data: st.DataObject, newline: str) -> None:
    text = newline.join(lines) + newline
    before = yaml.safe_load(text)
    key = data.draw(st.sampled_from(paths(before)))
    after = edited(text, key, value)
    if after is None:
        return
    assert yaml.safe_load(after) == expected(before, key, value)
    assert comments(after) == comments(text)
    assert is_kept(text.split(newline), after.split(newline))
    assert edited(after, key, value) == after
    assert after.count("\r\n") == after.count("\n") * (newline == "\r\n")


@given(mappings(), VALUES, st.data(), st.sampled_from(["\n", "\r\n"]))
def test_inserting(lines: list[str], value: Any, data: st.DataObject, newline: str) -> None:
    text = newline.join(lines) + newline
    before = yaml.safe_load(text)
    parents = ["", *(path + "." for path in paths(before) if isinstance(_at(before, path), dict))]
    key = data.draw(st.sampled_from(parents)) + data.draw(st.sampled_from(["new", "new.inner", "new.a.b"]))
    after = edited(text, key, value)
    assert after is not None, "a key can always be added to a mapping"
    assert yaml.safe_load(after) == expected(before, key, value)
    assert comments(after) == comments(text)
    assert is_kept(text.split(newline), after.split(newline))
    assert edited(after, key, value) == after


@given(mappings(), st.data())
def test_values_that_can_always_be_replaced(lines: list[str], data: st.DataObject) -> None:
    """The guard of `test_replacing`: a scalar is never refused."""
    text = "\n".join(lines)
    before = yaml.safe_load(text)
    scalars = [path for path in paths(before) if not isinstance(_at(before, path), (dict, list))]
    if scalars:
        assert edited(text, data.draw(st.sampled_from(scalars)), 7) is not None


def _at(data: Any, path: str) -> Any:
    for name in path.split("."):
        data = data[name]
    return data
