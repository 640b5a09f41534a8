"""`test`, `[ ]` and `[[ ]]`: true, false or undecided, and how sure that is.

A variable that nothing in the file sets is taken as empty when a test asks only for that (`[ -z "$1" ]`), because then the
script itself says what happens without it; the answer is a default. Compared with a text, it is undecided.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from memlint.facts import Status
from memlint.read.shell.value import Array, Value, raw_text, status_of, text_of

UNARY = frozenset(f"-{letter}" for letter in "znfdexrwsLhvtbcpSugkOGNo")
BINARY = frozenset({"=", "==", "!=", "=~", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})
NUMERIC = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}


@dataclass(frozen=True, slots=True)
class Truth:
    """`value` None is undecided; `status` DEFAULT means: unless the caller or the environment says otherwise."""

    value: bool | None
    status: Status = Status.FIXED

    def negated(self) -> Truth:
        """The opposite."""
        return self if self.value is None else Truth(not self.value, self.status)


UNDECIDED = Truth(None)
YES = Truth(True)
NO = Truth(False)


def both(a: Truth, b: Truth) -> Truth:
    """`a && b`."""
    for truth in (a, b):
        if truth.value is False:
            return truth
    if a.value is None or b.value is None:
        return UNDECIDED
    return Truth(True, _weaker(a, b))


def either(a: Truth, b: Truth) -> Truth:
    """`a || b`."""
    return both(a.negated(), b.negated()).negated()


def _weaker(a: Truth, b: Truth) -> Status:
    return Status.DEFAULT if Status.DEFAULT in (a.status, b.status) else Status.FIXED


def test(words: Array, *, extended: bool) -> Truth:
    """The truth of the words between the brackets. `extended` is `[[ ]]` (patterns on the right side)."""
    reader = _Test(words, extended)
    truth = reader.disjunction()
    return truth if reader.at == len(words) else UNDECIDED


class _Test:
    def __init__(self, words: Array, extended: bool) -> None:
        self.words, self.extended, self.at, self.depth = words, extended, 0, 0

    def _operator(self, offset: int = 0) -> str:
        index = self.at + offset
        if index >= len(self.words):
            return ""
        value = self.words[index]
        return raw_text(value) if value and not any(p.quoted for p in value) else ""

    def disjunction(self) -> Truth:
        left = self.conjunction()
        while self._operator() in ("||", "-o"):
            self.at += 1
            left = either(left, self.conjunction())
        return left

    def conjunction(self) -> Truth:
        left = self.primary()
        while self._operator() in ("&&", "-a"):
            self.at += 1
            left = both(left, self.primary())
        return left

    def primary(self) -> Truth:
        self.depth += 1
        if self.depth > 200 or self.at >= len(self.words):
            return UNDECIDED
        operator = self._operator()
        if operator == "!" and self.at + 1 < len(self.words):
            self.at += 1
            return self.primary().negated()
        if operator == "(":
            self.at += 1
            inside = self.disjunction()
            self.at += 1
            return inside
        if self._operator(1) in BINARY and self.at + 2 < len(self.words):
            left, comparison, right = self.words[self.at], self._operator(1), self.words[self.at + 2]
            self.at += 3
            return self._compare(left, comparison, right)
        if operator in UNARY and self.at + 1 < len(self.words):
            operand = self.words[self.at + 1]
            self.at += 2
            return _nonempty(operand, negate=operator == "-z") if operator in ("-n", "-z") else UNDECIDED
        if operator in UNARY:
            # `[ -n $X ]` with an empty X has one word, which is not empty.
            self.at += 1
            return Truth(operator != "-z", Status.DEFAULT)
        value = self.words[self.at]
        self.at += 1
        return _nonempty(value, negate=False)

    def _compare(self, left: Value, comparison: str, right: Value) -> Truth:
        if comparison in NUMERIC:
            a, b = text_of(left), text_of(right)
            try:
                decided = NUMERIC[comparison](int((a or "").strip()), int((b or "").strip()))
            except ValueError:
                return UNDECIDED
            return Truth(decided, status_of((*left, *right)))
        if comparison not in ("=", "==", "!=", "=~"):
            return UNDECIDED
        if not left and not right:
            return Truth(comparison != "!=")
        left_text, assumed = _as_text(left)
        right_text, also_assumed = _as_text(right)
        if left_text is None or right_text is None:
            return UNDECIDED
        if comparison == "=~":
            return UNDECIDED if assumed or also_assumed else _matches(left_text, right_text, status_of((*left, *right)))
        pattern = self.extended and not any(p.quoted for p in right)
        equal = fnmatchcase(left_text, right_text) if pattern and right_text else left_text == right_text
        if assumed or also_assumed:
            if not equal:
                return UNDECIDED
            return Truth(comparison != "!=", Status.DEFAULT)
        return Truth(equal == (comparison != "!="), status_of((*left, *right)))


def _matches(text: str, pattern: str, status: Status) -> Truth:
    """`=~` for patterns without a construct that Python reads differently."""
    if len(pattern) > 200 or len(text) > 10_000 or re.search(r"\[\[:|[*+}]\)?[*+{]", pattern):
        return UNDECIDED
    try:
        return Truth(re.search(pattern, text) is not None, status)
    except re.error:
        return UNDECIDED


def _as_text(value: Value) -> tuple[str | None, bool]:
    """The text, with pieces that nothing sets taken as empty (second value True); None when truly unknown."""
    if any(p.status is Status.UNKNOWN and not p.external for p in value):
        return None, False
    assumed = any(p.status is Status.UNKNOWN for p in value)
    return "".join(p.text for p in value if p.status is not Status.UNKNOWN), assumed


def _nonempty(value: Value, *, negate: bool) -> Truth:
    text, assumed = _as_text(value)
    if text is None:
        return UNDECIDED
    if text and assumed:
        return Truth(not negate)
    status = Status.DEFAULT if assumed else status_of(value)
    return Truth(bool(text) != negate, status)
