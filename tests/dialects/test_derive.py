"""Facts computed from facts: status, choices, reasons and origins are carried along."""

from __future__ import annotations

import pytest

from memlint.dialects.derive import Impossible, boolean, derive, given, integer, number, rename, soften
from memlint.facts import Fact, Status, choices, default, fixed, unknown
from memlint.source import Span

A, B = Span("a.py", 1), Span("a.py", 2)


def test_a_known_result_is_fixed_if_an_argument_is_fixed_and_else_a_default() -> None:
    assert derive(lambda a, b: a * b, fixed(2, A), default(3, "lib")) == Fact(6, Status.FIXED, fixed(2, A).origin)
    assert derive(lambda a, b: a * b, default(2, "lib"), default(3, "lib")).status is Status.DEFAULT


def test_the_origin_is_the_argument_that_decides() -> None:
    mode = derive(lambda bf16, fp16: "fp16" if fp16 else "fp32", fixed(False, A), fixed(True, B))
    assert mode.origin[0].span == B
    assert derive(lambda bf16, fp16: "fp32", fixed(False, A), default(False, "lib")).origin[0].span == A


def test_unknown_arguments_make_the_result_unknown_for_the_same_reason() -> None:
    result = derive(lambda a, b: a + b, fixed(1), unknown("from the command line", B))
    assert (result.status, result.reason) == (Status.UNKNOWN, "from the command line")


def test_choices_are_carried_through_and_collapse_when_they_agree() -> None:
    assert derive(lambda a: a * 2, choices([1, 2], A)).choices == (2, 4)
    assert derive(lambda a: a > 0, choices([1, 2], A)).value is True
    assert derive(lambda a, b: a + b, choices([1, 2]), choices([10, 20])).choices == (11, 21, 12, 22)


def test_facts_decided_by_the_same_card_move_together() -> None:
    bf16, fp16 = choices([True, False], decided_by="gpu.bf16"), choices([False, True], decided_by="gpu.bf16")
    mode = derive(lambda b, f: "bf16" if b else "fp16" if f else "fp32", bf16, fp16)
    assert (mode.choices, mode.decided_by) == (("bf16", "fp16"), "gpu.bf16")


def test_a_combination_that_the_framework_rejects_is_dropped() -> None:
    def mode(b: bool, f: bool) -> str:
        if b and f:
            raise Impossible("both")
        return "bf16" if b else "fp16" if f else "fp32"

    assert derive(mode, choices([True, False]), choices([True, False])).choices == ("bf16", "fp16", "fp32")
    assert derive(mode, fixed(True), fixed(True)).reason == "both"


def test_a_value_of_the_wrong_type_is_unknown_and_no_crash() -> None:
    for value in ("many", None, [1], {}, 1.5, True):
        assert not derive(integer, fixed(value, A)).known


def test_too_many_combinations_are_unknown() -> None:
    many = [choices(range(10)) for _ in range(3)]
    assert not derive(lambda *values: sum(values), *many).values


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("Yes", True), ("on", True), ("0", False), ("no", False), (1, True), (0, False)]
)
def test_switches(text: object, value: bool) -> None:
    assert boolean(text) is value


@pytest.mark.parametrize("text", ["", "maybe", 2, None, []])
def test_no_switches(text: object) -> None:
    with pytest.raises(ValueError):
        boolean(text)


@pytest.mark.parametrize(("text", "value"), [("1e-4", 1e-4), ("16", 16), (5e8, 5e8), ("1.0", 1.0), (3, 3)])
def test_numbers_written_as_text(text: object, value: float) -> None:
    assert number(text) == value


def test_an_explicit_null_counts_as_absent() -> None:
    assert given({"a": fixed(None), "b": fixed(1)}, "a", "b") == fixed(1)
    assert given({"a": fixed(None)}, "a") is None
    assert given({"a": unknown("x")}, "a") == unknown("x")
    assert rename({"a": fixed("4"), "b": fixed(None)}, {"x.a": ("a", integer), "x.b": ("b", integer)}) == {"x.a": fixed(4)}


def test_softening_never_makes_an_unknown_known() -> None:
    soft = soften(fixed(1, A), "follows")
    assert (soft.status, soft.origin[0].span, soft.origin[1].span) == (Status.DEFAULT, None, A)
    assert soften(unknown("x"), "follows").status is Status.UNKNOWN
