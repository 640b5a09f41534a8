"""YAML text to documents: values as PyYAML's SafeLoader gives them, every node at its place."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from memlint.facts import Status
from memlint.read.document import Document, Scalar, flatten, plain
from memlint.read.yamldoc import read_yaml
from memlint.source import Kind, ReadError, Source, Span


def documents(text: str) -> tuple[Document, ...]:
    return read_yaml(Source("c.yaml", Kind.YAML, text))


def document(text: str) -> Document:
    (only,) = documents(text)
    return only


def excerpt(text: str, span: Span) -> str:
    """The text that a span on one line covers."""
    assert span.line == span.end_line
    return text.splitlines()[span.line - 1][span.column - 1 : span.end_column - 1]


@pytest.mark.parametrize(
    "text",
    [
        "yes", "No", "on", "OFF", "true", "null", "~", "", "1e-4", "1.0e-4", "2E5", "1_000", "0o17", "017", "0x1f", "0b11",
        "1:30", "1:30.5",
        ".5", "5.", ".inf", "-.INF", "+12", "-0", "1.5e+3", "'no'", '"1"', "bf16", "2024-01-02x", "1,000", "0.1.2",
    ],
)  # fmt: skip
def test_a_scalar_has_the_type_that_pyyaml_gives_it(text: str) -> None:
    assert plain(document(f"key: {text}").root) == yaml.safe_load(f"key: {text}")


def test_not_a_number_is_read() -> None:
    value = plain(document("key: .nan").root)["key"]
    assert math.isnan(value)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**9), 10**9)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abcdef_", min_size=1, max_size=6), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
@settings(max_examples=150, deadline=None)
def test_what_pyyaml_writes_is_read_back(value: object) -> None:
    text = yaml.safe_dump({"key": value}, allow_unicode=True)
    assert plain(document(text).root) == yaml.safe_load(text)


def test_spans_cover_the_value_token() -> None:
    text = "# top\r\nmodel: 'a/b'   # id\r\nouter:\r\n  inner: [1, two]\r\n"
    facts = flatten(document(text))
    spans = {path: fact.origin[0].span for path, fact in facts.items()}
    assert excerpt(text, spans["model"]) == "'a/b'"  # type: ignore[arg-type]
    assert excerpt(text, spans["outer.inner"]) == "[1, two]"  # type: ignore[arg-type]
    assert excerpt(text, spans["outer.inner.1"]) == "two"  # type: ignore[arg-type]
    assert facts["outer"].value == {"inner": [1, "two"]}


def test_columns_count_characters_and_lines_as_editors_do() -> None:
    text = "a: 'x\u2028y\x85'\nb: '\U0001f600' \nc: é: 3\n".replace("c: é: 3", '"é": 3')
    spans = {path: fact.origin[0].span for path, fact in flatten(document(text)).items()}
    assert (spans["b"].line, spans["b"].column) == (2, 4)  # type: ignore[union-attr]
    assert (spans["é"].line, spans["é"].column) == (3, 6)  # type: ignore[union-attr]


def test_anchors_and_merge_keys() -> None:
    text = "base: &b {lr: 1, bs: 2}\nrun:\n  <<: *b\n  bs: 4\nmany:\n  <<: [{x: 1}, {x: 2, y: 3}]\n"
    root = plain(document(text).root)
    assert root["run"] == {"lr": 1, "bs": 4}
    assert root["many"] == {"x": 1, "y": 3}  # of several merged mappings the first wins
    assert flatten(document(text))["run.lr"].origin[0].span.line == 1  # type: ignore[union-attr]


def test_a_duplicate_key_keeps_the_last_value_and_is_reported() -> None:
    found = document("a: 1\nb: 2\na: 3\n")
    assert plain(found.root) == {"b": 2, "a": 3}
    (problem,) = found.problems
    assert (problem.name, problem.span.line, problem.related[0].line) == ("duplicate-key", 3, 1)


def test_an_explicit_null_is_a_fixed_none() -> None:
    facts = flatten(document("fp16:\nbf16: ~\n"))
    assert [facts[name].value for name in ("fp16", "bf16")] == [None, None]
    assert facts["fp16"].status is Status.FIXED


def test_several_documents_and_empty_ones() -> None:
    assert [plain(found.root) for found in documents("a: 1\n---\nb: 2\n---\n# nothing\n")] == [{"a": 1}, {"b": 2}, None]
    assert documents("") == ()


def test_a_tag_of_the_application_is_unknown_and_nothing_is_constructed() -> None:
    facts = flatten(document("a: !ENV ${X}\nb: !!python/object/apply:os.system ['true']\nc: !!python/name:os.system ''\n"))
    assert not facts["a"].known
    assert facts["b"].value == ["true"]
    assert not facts["c"].known


def test_a_template_placeholder_is_unknown() -> None:
    assert not flatten(document("bs: '{{ batch }}'\n"))["bs"].known


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\n b: 2\n", 2, "mapping values are not allowed"),
        ("a: [1,\nb: 2\n", 1, "not valid YAML"),
        ("\ta: 1\n", 1, "tab"),
        ("a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> x\n", 2, "merge conflict"),
        ("bs: {{ batch }}\n", 1, "placeholder"),
        ("a: *missing\n", 1, "undefined alias"),
        ("a: \x01\n", 1, "not valid YAML"),
        ("a: 'x\n", 1, "not valid YAML"),
        ("[" * 5000, 1, "not valid YAML"),
        ("- " * 5000, 1, "not valid YAML"),
        ("a: &a [*a]\n", 1, "nested too deeply"),
        ("{x: " * 300 + "1" + "}" * 300, 1, "nested too deeply"),
    ],
)
def test_what_is_not_yaml_is_one_error_with_its_place(text: str, line: int, message: str) -> None:
    with pytest.raises(ReadError, match=message) as caught:
        documents(text)
    assert caught.value.line == line
    assert "\n" not in caught.value.message


def test_an_alias_bomb_is_refused_before_it_expands() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for index in range(1, 10):
        name, before = chr(97 + index), chr(96 + index)
        lines.append(f"{name}: &{name} [{', '.join(['*' + before] * 9)}]")
    with pytest.raises(ReadError, match="too many"):
        flatten(document("\n".join(lines)))


@given(st.text(alphabet=" \n\t:-[]{}#&*!|>'\"%@`?,abc01~\\", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_documents_or_one_read_error(text: str) -> None:
    try:
        for found in documents(text):
            flatten(found)
    except ReadError as error:
        assert error.line >= 1


def test_a_node_is_found_by_its_dotted_path() -> None:
    found = document("a:\n  b: 1\na.c: 2\n")
    assert isinstance(found.at("a.b"), Scalar)
    assert found.text_at("a.c") == "2"
    assert found.at("a.b.c") is None
    assert found.text_at("a") is None
