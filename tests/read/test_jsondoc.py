"""JSON text to documents: what `json.load` would make of it, with places; comments and trailing commas are reported."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlint.read.document import flatten, plain
from memlint.read.jsondoc import read_json
from memlint.source import Kind, ReadError, Source


def read(text: str):
    return read_json(Source("c.json", Kind.JSON, text))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([None, 1, "\t"]))
@settings(max_examples=200, deadline=None)
def test_what_json_writes_is_read_back_without_a_problem(value: object, indent: int | str | None) -> None:
    found = read(json.dumps(value, indent=indent))
    assert plain(found.root) == value
    assert found.problems == ()


def test_comments_and_trailing_commas_are_read_and_reported_where_they_are() -> None:
    text = '{\n  // batch\n  "a": [1, 2,],\n  "b": {"c": 5e8} /* end */\n}\n'
    found = read(text)
    assert plain(found.root) == {"a": [1, 2], "b": {"c": 5e8}}
    assert [(p.name, p.span.line) for p in found.problems] == [("invalid-json", 2), ("invalid-json", 3)]
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


def test_spans_of_keys_and_values() -> None:
    text = '{"zero_optimization": {"stage": 3,\r\n  "offload_param": {"device": "cpu"}}}'
    facts = flatten(read(text))
    stage, device = (facts[f"zero_optimization.{name}"].origin[0].span for name in ("stage", "offload_param.device"))
    assert stage is not None
    assert device is not None
    assert (stage.line, stage.column, stage.end_column) == (1, 33, 34)
    assert (device.line, text.split("\r\n")[1][device.column - 1 : device.end_column - 1]) == (2, '"cpu"')


def test_a_duplicate_key_keeps_the_last_value_as_json_does() -> None:
    text = '{"a": 1, "a": 2}'
    found = read(text)
    assert plain(found.root) == json.loads(text)
    assert [problem.name for problem in found.problems] == ["duplicate-key"]


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_the_words_that_pythons_json_accepts(word: str) -> None:
    assert str(plain(read(f"[{word}]").root)) == str(json.loads(f"[{word}]"))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{\n "train_batch_size" : GB_SIZE\n}', 2, "GB_SIZE"),
        ("", 1, "cut off"),
        ('{"a": 1', 1, "cut off"),
        ('{"a" 1}', 1, "':'"),
        ("{'a': 1}", 1, "double quotes"),
        ('{"a": 1 "b": 2}', 1, "','"),
        ('{"a": 01}', 1, "expected"),
        ('{"a": "x\n"}', 1, "string"),
        ('["\\x"]', 1, "escape"),
        ("{} {}", 1, "after the end"),
        ("[" * 5000, 1, "nested too deeply"),
        ('{\n<<<<<<< HEAD\n"a": 1\n}', 2, "double quotes"),
    ],
)
def test_what_is_not_json_is_one_error_with_its_place(text: str, line: int, message: str) -> None:
    with pytest.raises(ReadError, match=message) as caught:
        read(text)
    assert caught.value.line == line


@given(st.text(alphabet='{}[]",:\\/*#0123456789eE+-.truefalsn \n', max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_as_json_reads_it_or_is_one_error(text: str) -> None:
    try:
        found = read(text)
    except ReadError:
        with pytest.raises(ValueError):
            json.loads(text)
        return
    flatten(found)
    if not any(problem.name == "invalid-json" for problem in found.problems):
        assert plain(found.root) == json.loads(text)
