"""JSON splices: `json.loads` says what the new text means, and the old lines say what must not change."""

from __future__ import annotations

import copy
import difflib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.facts import Site
from memlint.fixes.edit import apply
from memlint.fixes.json_writer import set_key, set_value, states
from memlint.source import Kind, Source, Span


def edited(text: str, key: str, value: Any, pointer: str = "") -> str | None:
    edits = set_key("x.json", text, pointer, key, value)
    return None if edits is None else apply(text, edits)


CASES = {
    "a value": ('{\n  "a": 1,\n  "b": 2\n}\n', "a", "auto", '{\n  "a": "auto",\n  "b": 2\n}\n'),
    "a comment stays": ('{\n  "a": 1, // one\n  "b": 2\n}\n', "a", 3, '{\n  "a": 3, // one\n  "b": 2\n}\n'),
    "a new member on its own line": ('{\n    "a": 1\n}\n', "b", True, '{\n    "a": 1,\n    "b": true\n}\n'),
    "tabs": ('{\n\t"a": 1\n}', "b.c", 2, '{\n\t"a": 1,\n\t"b": {\n\t\t"c": 2\n\t}\n}'),
    "on one line": ('{"a": {"b": 1}}', "a.c", None, '{"a": {"b": 1, "c": null}}'),
    "into an empty object": ('{"a": {}}', "a.b.c", 1, '{"a": {"b": {"c": 1}}}'),
    "CRLF": ('{\r\n  "a": 1\r\n}\r\n', "b", 2, '{\r\n  "a": 1,\r\n  "b": 2\r\n}\r\n'),
    "the last of two equal keys counts": ('{"a": 1, "a": 2}', "a", 3, '{"a": 1, "a": 3}'),
    "through a list": ('{"l": [1, {"q": 2}]}', "l.1.q", 3, '{"l": [1, {"q": 3}]}'),
    "not ASCII": ('{"é": "ü"}', "é", "ö", '{"é": "ö"}'),
}


@pytest.mark.parametrize(("text", "key", "value", "expected"), CASES.values(), ids=CASES)
def test_set(text: str, key: str, value: Any, expected: str) -> None:
    assert edited(text, key, value) == expected
    assert edited(expected, key, value) == expected, "fixing twice changes nothing"


REFUSED = {
    "an object replaced by a value": ('{"a": {"b": 1}}', "a", 1),
    "a key below a value": ('{"a": 1}', "a.b", 1),
    "a list at the root": ("[1]", "a", 1),
    "not JSON": ('{"a": }', "a", 1),
    "an empty file": ("", "a", 1),
}


@pytest.mark.parametrize(("text", "key", "value"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, key: str, value: Any) -> None:
    assert edited(text, key, value) is None


def test_set_value_at_a_place_keeps_the_type() -> None:
    source = Source("x.json", Kind.JSON, '{\n  "z": {"stage": 2}\n}')
    place = Span("x.json", 2, 18, 2, 19)
    edits = set_value(source, place, 3)
    assert edits is not None
    assert apply(source.text, edits) == '{\n  "z": {"stage": 3}\n}'
    assert set_value(source, place, "3") is None


def test_states() -> None:
    source = Source("x.json", Kind.JSON, '{"z": {"stage": 2}}')
    site = Site("deepspeed", "json", Span("x.json", 1), "z")
    assert states(source, site, "stage")
    assert not states(source, site, "z.stage")


# Properties ----------------------------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=6)
)
NAMES = st.text(alphabet='abé"\\ /', min_size=1, max_size=4)
OBJECTS = st.dictionaries(
    NAMES,
    st.recursive(SCALARS | st.lists(SCALARS, max_size=3), lambda inner: st.dictionaries(NAMES, inner, max_size=3)),
    max_size=4,
)


def paths(data: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(data, dict):
        return []
    return [path for key, value in data.items() for path in [(*prefix, key), *paths(value, (*prefix, key))]]


def at(data: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        data = data[name]
    return data


@given(
    OBJECTS,
    SCALARS | st.lists(SCALARS, max_size=2),
    st.sampled_from([None, 2, 4, "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.data(),
)
def test_setting(document: Any, value: Any, indent: Any, newline: str, data: st.DataObject) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=data.draw(st.booleans())).replace("\n", newline)
    parents = [(), *(path for path in paths(document) if isinstance(at(document, path), dict))]
    scalars = [path for path in paths(document) if not isinstance(at(document, path), dict)]
    path = data.draw(st.sampled_from([*((*parent, "new") for parent in parents), *scalars]))
    after = edited(text, ".".join(path), value)
    assert after is not None
    expected = copy.deepcopy(document)
    at(expected, path[:-1])[path[-1]] = value
    assert json.dumps(json.loads(after)) == json.dumps(expected)
    assert edited(after, ".".join(path), value) == after
    if not any(isinstance(at(document, p), list) for p in scalars):  # a list over several lines becomes one line
        gone = difflib.SequenceMatcher(None, text.split(newline), after.split(newline), autojunk=False).get_opcodes()
        assert sum(op[2] - op[1] for op in gone if op[0] != "equal") <= 1
