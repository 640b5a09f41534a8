"""The rule language: three-valued logic, the whitelist, and the check of kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.rules.expression import UNKNOWN, ExpressionError, parse
from memlint.rules.kinds import Kind, check


class Values:
    """A scope of given values: a name maps to everything it may be."""

    def __init__(self, values: Mapping[str, tuple[Any, ...]], explicit: tuple[str, ...] = (), problems: tuple[str, ...] = ()):
        self._values, self._explicit, self._problems = values, explicit, problems

    def values(self, name: str) -> tuple[Any, ...]:
        return self._values.get(name, ())

    def known(self, name: str) -> bool:
        return len(self.values(name)) == 1

    def absent(self, name: str) -> bool:
        return name not in self._values

    def explicit(self, name: str) -> bool:
        return name in self._explicit

    def problem(self, name: str) -> bool:
        return name in self._problems


KINDS = {"a.flag": Kind.BOOL, "b.flag": Kind.BOOL, "size": Kind.NUMBER, "word": Kind.TEXT, "names": Kind.LIST}


class Schema:
    def kind(self, name: str) -> Kind | None:
        return KINDS.get(name)

    def allowed(self, name: str) -> tuple[str, ...]:
        return ("full", "chunked") if name == "word" else ()


def decide(text: str, **values: Any) -> Any:
    scope = Values({name.replace("__", "."): (value,) for name, value in values.items()})
    return parse(text).decide(scope)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b and c", UNKNOWN),
        ("false and c", False),
        ("c and false", False),
        ("true or c", True),
        ("c or true", True),
        ("not c", UNKNOWN),
        ("c == 1", UNKNOWN),
        ("c in [1, 2]", UNKNOWN),
        ("1 < 2 < 3", True),
        ("1 < 2 < 2", False),
        ("min(3, 2) == 2 and max(3, 2) == 3 and abs(-1) == 1", True),
        ("has(['a', 'b'], 'b')", True),
        ("has('all-linear', 'linear')", True),
        ("'a' < 1", UNKNOWN),
        ("1 / 0 == 1", UNKNOWN),
        ("'a' * 3 == 'aaa'", UNKNOWN),
        ("7 // 2 == 3 and 7 % 2 == 1 and -(1 + 1) == 0 - 2", True),
        ("none == none", True),
        ("divisor(24, 7) == 6 and divisor(7, 6) == 1 and divisor(8, 100) == 8", True),
        ("divisor(8, 0) == 1", UNKNOWN),
        ("(1 if true else c) == 1", True),
        ("(1 if c else 1) == 1", UNKNOWN),
        ("1", UNKNOWN),
        ("1 and true", UNKNOWN),
    ],
)
def test_value_of(text: str, expected: Any) -> None:
    assert decide(text) is expected


def test_names_with_dots_are_looked_up_whole() -> None:
    expression = parse("checkpointing.enabled and batch.size >= 2 and known(model.id)")
    assert expression.names == ("checkpointing.enabled", "batch.size")
    assert expression.decide(Values({"checkpointing.enabled": (True,), "batch.size": (2,), "model.id": ("x",)})) is True


def test_several_values_decide_only_when_they_agree() -> None:
    expression = parse("batch >= 2 and (kind == 'a' or kind == 'b')")
    assert expression.decide(Values({"batch": (2, 8), "kind": ("a", "b")})) is True
    assert expression.decide(Values({"batch": (1, 8), "kind": ("a", "b")})) is UNKNOWN
    assert expression.decide(Values({"batch": (0, 1), "kind": ("a", "b")})) is False


def test_too_many_combinations_are_unknown_not_slow() -> None:
    names = [f"n{i}" for i in range(20)]
    expression = parse(" or ".join(f"{name} == 1" for name in names))
    assert expression.decide(Values(dict.fromkeys(names, (0, 2)))) is UNKNOWN


def test_explicit_and_problem_are_never_unknown() -> None:
    scope = Values({}, explicit=("a.b",), problems=("unknown-key",))
    assert parse("explicit(a.b) and problem('unknown-key')").decide(scope) is True
    assert parse("explicit(c) or problem('other') or known(c)").decide(scope) is False
    assert parse("absent(c)").decide(scope) is True
    assert parse("absent(c)").decide(Values({"c": ()})) is False
    assert parse("problem('unknown-key')").problems == ("unknown-key",)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('x')",
        "(lambda: 1)()",
        "[x for x in y]",
        "divisor(4)",
        "9 ** 9",
        "a[0]",
        "a.b()",
        "min(1)",
        "known(1 + 1)",
        "f'{a}'",
        "a := 1",
        "a; b",
        "",
        "min(1, 2, key=abs)",
        "b'x' == 1",
        "(" * 500 + "1" + ")" * 500,
        "not " * 400 + "a",
        "a == " + "1" * 3000,
    ],
)
def test_outside_the_language(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a.flg", "there is no fact or term 'a.flg'"),
        ("known(a.flg)", "there is no fact or term 'a.flg'"),
        ("size and a.flag", "size is a number, expected true or false"),
        ("size < 'x'", "'x' is a text, expected a number"),
        ("word == 3", "3 is a number, expected a text"),
        ("word == 'ful'", "word is never 'ful'; it is one of full, chunked"),
        ("word in ('full', 'fused')", "word is never 'fused'; it is one of full, chunked"),
        ("size in size", "size is a number, expected a list"),
        ("size + 1", "size + 1 is a number, expected true or false"),
        ("not size", "size is a number, expected true or false"),
        ("min(word, 1) > 0", "word is a text, expected a number"),
        ("('x' if size else 'y') == word", "size is a number, expected true or false"),
        ("('x' if a.flag else 1) == word", "1 is a number, expected a text"),
    ],
)
def test_kinds_are_checked_when_a_page_is_loaded(text: str, complaint: str) -> None:
    with pytest.raises(ExpressionError) as error:
        check(parse(text), Schema())
    assert str(error.value) == complaint


def test_kinds_that_fit() -> None:
    check(
        parse("a.flag and not b.flag and size * 2 >= 3 and word == 'full' and has(names, 'x') and word != none"),
        Schema(),
    )


# Kleene logic, on random expressions over three names: an answer given without a name must stand whatever the name is.

NAMES = ("x", "y", "z")
TRUTH = {True: (True,), False: (False,), None: ()}


def expressions() -> st.SearchStrategy[str]:
    leaves = st.sampled_from([*NAMES, "true", "false"])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("({} and {})".format, inner, inner),
            st.builds("({} or {})".format, inner, inner),
            st.builds("(not {})".format, inner),
            st.builds("({} == {})".format, inner, inner),
        ),
        max_leaves=8,
    )


def kleene(text: str, values: Mapping[str, bool]) -> bool:
    """Two-valued reference: Python's own evaluation of an expression made of names, and, or, not and ==."""
    return bool(eval(text, {"__builtins__": {}}, {**values, "true": True, "false": False}))


@given(expressions(), st.fixed_dictionaries({name: st.sampled_from([True, False, None]) for name in NAMES}))
def test_an_answer_stands_however_the_unknown_turns_out(text: str, known: dict[str, bool | None]) -> None:
    answer = parse(text).decide(Values({name: TRUTH[value] for name, value in known.items()}))
    completions = [
        {name: known[name] if known[name] is not None else bool(bits >> i & 1) for i, name in enumerate(NAMES)}
        for bits in range(8)
    ]
    outcomes = {kleene(text, completion) for completion in completions}
    assert answer is UNKNOWN or outcomes == {answer}
    if None not in known.values():
        assert answer in outcomes


@given(expressions(), st.fixed_dictionaries({name: st.sampled_from([(True,), (False,), (True, False)]) for name in NAMES}))
def test_choices_are_exact(text: str, values: dict[str, tuple[bool, ...]]) -> None:
    outcomes = {kleene(text, {"x": x, "y": y, "z": z}) for x in values["x"] for y in values["y"] for z in values["z"]}
    answer = parse(text).decide(Values(values))
    assert answer is (outcomes.pop() if len(outcomes) == 1 else UNKNOWN)
