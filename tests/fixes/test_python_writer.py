"""Python splices: `ast` says what the new text means, tokens say that no comment is lost."""

from __future__ import annotations

import ast
import io
import tokenize
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.facts import Site
from memlint.fixes.edit import apply
from memlint.fixes.python_writer import set_arguments, set_literal, states
from memlint.source import Kind, Source, Span


def edited(text: str, values: dict[str, Any], span: Span | None = None) -> str | None:
    edits = set_arguments("x.py", text, span or Span("x.py", 1, 1), values)
    return None if edits is None else apply(text, edits)


CASES = {
    "a literal": ("f(a=1, b=2)\n", {"a": 3}, "f(a=3, b=2)\n"),
    "quotes kept": ("f(a='x', b=\"y\")\n", {"a": "z", "b": "z"}, "f(a='z', b=\"z\")\n"),
    "a dtype stays a torch dtype": ("f(dtype=torch.float32)\n", {"dtype": "bfloat16"}, "f(dtype=torch.bfloat16)\n"),
    "no argument yet": ("f()\n", {"a": True}, "f(a=True)\n"),
    "on one line": ("f(x)\n", {"a": None, "b": 0.5}, "f(x, a=None, b=0.5)\n"),
    "on one line with a comma": ("f(x,)\n", {"a": 1}, "f(x, a=1,)\n"),
    "replaced and added": ("f(x, y=1)\n", {"y": 2, "a": 1}, "f(x, y=2, a=1)\n"),
    "one to a line": ("f(\n    x,\n    y=1,\n)\n", {"a": 1}, "f(\n    x,\n    y=1,\n    a=1,\n)\n"),
    "one to a line, no comma": ("f(\n    x,\n    y=1\n)\n", {"a": 1}, "f(\n    x,\n    y=1,\n    a=1\n)\n"),
    "comments after the last": (
        "f(\n    y=1,  # one\n    # more\n)\n",
        {"a": 1},
        "f(\n    y=1,  # one\n    a=1,\n    # more\n)\n",
    ),
    "a comment after the last without a comma": (
        "f(\n    y=1  # one\n)\n",
        {"a": 1, "b": 2},
        "f(\n    y=1,  # one\n    a=1,\n    b=2\n)\n",
    ),
    "closed on the last line": ("f(x,\n  y=1)\n", {"a": 1}, "f(x,\n  y=1,\n  a=1)\n"),
    "a value in parentheses": ("f(y=(1))\n", {"a": 1}, "f(y=(1), a=1)\n"),
    "CRLF and tabs": ("f(\r\n\ty=1,\r\n)\r\n", {"a": 1}, "f(\r\n\ty=1,\r\n\ta=1,\r\n)\r\n"),
    "not ASCII before": ("f('é', y='ü', b=1)\n", {"b": 2}, "f('é', y='ü', b=2)\n"),
    "a mapping is added": ("f(x)\n", {"k.r": False}, 'f(x, k={"r": False})\n'),
    "a mapping is completed": ('f(k={"a": 1})\n', {"k.r": False}, 'f(k={"a": 1, "r": False})\n'),
}


@pytest.mark.parametrize(("text", "values", "expected"), CASES.values(), ids=CASES)
def test_set_arguments(text: str, values: dict[str, Any], expected: str) -> None:
    assert edited(text, values) == expected
    assert edited(expected, values) == expected, "fixing twice changes nothing"


REFUSED = {
    "a name": ("f(a=x)\n", {"a": 1}),
    "a condition": ("f(a=1 if x else 2)\n", {"a": 1}),
    "a probe of the card": ("f(bf16=torch.cuda.is_bf16_supported())\n", {"bf16": False}),
    "a keyword that may come from **": ("f(**kw)\n", {"a": 1}),
    "a mapping over several lines": ('f(k={\n    "a": 1,\n})\n', {"k.r": False}),
    "a generator": ("f(x for x in y)\n", {"a": 1}),
    "no call": ("x = 1\n", {"a": 1}),
    "not Python": ("f(\n", {"a": 1}),
}


@pytest.mark.parametrize(("text", "values"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, values: dict[str, Any]) -> None:
    assert edited(text, values) is None


def test_the_call_is_found_by_its_end_when_two_start_together() -> None:
    text = "A(1).b(2)\n"
    assert edited(text, {"h": 1}, Span("x.py", 1, 1, 1, 5)) == "A(1, h=1).b(2)\n"
    assert edited(text, {"h": 1}, Span("x.py", 1, 1, 1, 10)) == "A(1).b(2, h=1)\n"


def test_an_argument_given_by_position_is_not_given_again() -> None:
    text = "LoraConfig(16, 32)\n"
    assert set_arguments("x.py", text, Span("x.py", 1, 1), {"r": 8}, Span("x.py", 1, 12, 1, 14)) is None


LITERALS = {
    "a constant": ("BATCH = 16  # c\n", (9, 11), 8, "BATCH = 8  # c\n"),
    "a parser's default": (
        "p.add_argument('--bs', type=int, default=16)\n",
        (42, 44),
        8,
        "p.add_argument('--bs', type=int, default=8)\n",
    ),
    "a value of a dict": ("kw = {'bf16': False}\n", (15, 20), True, "kw = {'bf16': True}\n"),
    "a field of a dataclass": ("    lr: float = -1.0\n".lstrip(), (13, 17), 1e-5, "lr: float = 1e-05\n"),
}


@pytest.mark.parametrize(("text", "columns", "value", "expected"), LITERALS.values(), ids=LITERALS)
def test_set_literal(text: str, columns: tuple[int, int], value: Any, expected: str) -> None:
    edits = set_literal("x.py", text, Span("x.py", 1, columns[0], 1, columns[1]), value)
    assert edits is not None
    assert apply(text, edits) == expected


def test_a_literal_keeps_its_type() -> None:
    span = Span("x.py", 1, 9, 1, 11)
    assert set_literal("x.py", "BATCH = 16\n", span, "8") is None
    assert set_literal("x.py", "BATCH = 16\n", span, True) is None
    assert set_literal("x.py", "BATCH = bs\n", span, 8) is None


def test_states() -> None:
    source = Source("x.py", Kind.PYTHON, "f(a=x, k={'r': 1}, **kw)\n")
    site = Site("hf_arguments", "python", Span("x.py", 1, 1))
    assert [name for name in ("a", "k", "k.r", "k.s", "kw") if states(source, site, name)] == ["a", "k", "k.r"]


# Properties ----------------------------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.booleans(),
    st.integers(0, 10**6),
    st.floats(allow_nan=False, allow_infinity=False, min_value=0),
    st.text(max_size=8),
    st.none(),
    st.lists(st.sampled_from(["q_proj", "v'p"]), max_size=2),
)
OLD = st.sampled_from(
    ["1", "True", "'x'", '"it\'s"', "name", "g(1, (2))", "(3)", "[1, 2]", "lambda x: (x, 1)", "'é # no'", "{'a': 1}"]
)
COMMENT = st.sampled_from(["", "  # note", "  # (paren"])


@st.composite
def calls(draw: st.DrawFn) -> str:
    """A call in one of the ways people lay one out."""
    arguments = draw(st.lists(OLD, max_size=2))
    arguments += [f"{name}={draw(OLD)}" for name in draw(st.lists(st.sampled_from("abcd"), max_size=4, unique=True))]
    ends_with_comma = draw(st.booleans()) and bool(arguments)
    layout = draw(st.sampled_from(["line", "lines", "aligned"]))
    newline, indent = draw(st.sampled_from(["\n", "\r\n"])), draw(st.sampled_from(["    ", "  ", "\t"]))
    if layout == "line" or not arguments:
        return f"x = f({', '.join(arguments)}{',' if ends_with_comma else ''}){draw(COMMENT)}{newline}y = 1{newline}"
    head = "x = f(" + (newline + indent if layout == "lines" else "")
    separators = [f",{draw(COMMENT)}{newline}{indent}" for _ in arguments[1:]] + [""]
    body = "".join(a + s for a, s in zip(arguments, separators, strict=True)) + ("," if ends_with_comma else "")
    tail = f"{draw(COMMENT)}{newline}{indent}# last{newline})" if layout == "lines" else ")"
    return f"{head}{body}{tail}{newline}y = 1{newline}"


def comments(text: str) -> list[str]:
    return [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]


@given(calls(), st.dictionaries(st.sampled_from("abyz"), VALUES, min_size=1, max_size=3))
def test_only_the_arguments_change(text: str, values: dict[str, Any]) -> None:
    after = edited(text, values, Span("x.py", 1, 5))
    module = ast.parse(text)
    call = module.body[0].value  # type: ignore[attr-defined]
    if after is None:
        old = {k.arg: k.value for k in call.keywords}
        assert any(name in old and not isinstance(old[name], (ast.Constant, ast.List, ast.Dict)) for name in values)
        return
    given_keywords = {k.arg: k for k in call.keywords}
    for name, value in values.items():
        expression = ast.parse(repr(value), mode="eval").body
        if name in given_keywords:
            given_keywords[name].value = expression
        else:
            call.keywords.append(ast.keyword(name, expression))
    assert ast.dump(ast.parse(after)) == ast.dump(module)
    assert comments(after) == comments(text)
    assert edited(after, values, Span("x.py", 1, 5)) == after
    assert ("\r\n" in text) == ("\r\n" in after)
    assert after.count("\r\n") in (0, after.count("\n"))
