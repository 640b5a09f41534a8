"""Facts computed from facts: the arithmetic of a dialect, with status, choices and origin carried along.

`derive(function, *facts)` calls a plain function with values and gives a fact. What it does with facts that are not single
values is the same everywhere, so that no dialect has to think about it:

* any unknown argument makes the result unknown, for the same reason;
* choices give the choices of the result (facts that the same property of the card decides move together);
* the origin is that of the argument that decides: the first fixed one that is not merely switched off;
* the result is fixed if an argument is fixed, else a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product

from memlint.facts import Fact, Origin, Status, choices, unknown
from memlint.typed import Any

MAX_COMBINATIONS = 64
"""More combinations of choices than this make the result unknown."""

Native = Mapping[str, Fact]
"""The arguments of a dialect as written: native name (dotted for nested ones) -> fact."""

Facts = dict[str, Fact]
"""Canonical key -> fact."""


class Mistyped(ValueError):
    """Raised by a conversion for a value of another type; the text says what it should have been."""


_TYPES = ("a whole number", "a number", "true or false", "a text")


def is_mistyped(reason: str) -> bool:
    """Whether a fact is unknown because what is written is of another type."""
    return reason.endswith(tuple(f" is not {kind}" for kind in _TYPES))


class Impossible(Exception):
    """Raised by a derived function for a combination of values that the framework rejects; that combination is dropped."""


def derive(function: Callable[..., Any], *facts: Fact, note: str = "") -> Fact:
    """The fact `function(*values)`; see the module's text. `note`, if given, is added as a link of the origin."""
    for fact in facts:
        if fact.status is Status.UNKNOWN:
            return fact
    values: list[Any] = []
    combinations = list(_combinations(facts))
    if len(combinations) > MAX_COMBINATIONS:
        return unknown("too many combinations of possible values", _span(facts))
    for combination in combinations:
        try:
            values.append(function(*combination))
        except Impossible as error:
            reason = str(error) or "the framework rejects this combination"
        except Mistyped as error:
            reason = str(error)
        except (TypeError, ValueError, ArithmeticError, AttributeError, KeyError, IndexError):
            reason = f"{', '.join(_short(value) for value in combination)}: not a value that is understood here"
    if not values:
        return unknown(reason, _span(facts))
    origin = _origin(facts)
    if note:
        origin = (*origin, Origin(None, note))
    status = Status.FIXED if any(fact.status is not Status.DEFAULT for fact in facts) else Status.DEFAULT
    decided = {fact.decided_by for fact in facts if fact.status is Status.CHOICES}
    result = choices(values, decided_by=decided.pop() if len(decided) == 1 else "")
    if result.known:
        return Fact(result.value, status, origin)
    return result._replace(origin=origin)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _combinations(facts: tuple[Fact, ...]) -> Iterable[tuple[Any, ...]]:
    """Every combination of values; facts decided by the same thing are zipped, not multiplied."""
    groups: dict[str, list[int]] = {}
    for index, fact in enumerate(facts):
        if fact.status is Status.CHOICES:
            groups.setdefault(fact.decided_by or f"#{index}", []).append(index)
    names = list(groups)
    sizes = [range(min(len(facts[index].choices) for index in groups[name])) for name in names]
    for picks in product(*sizes):
        picked = {index: pick for name, pick in zip(names, picks, strict=True) for index in groups[name]}
        yield tuple(fact.choices[picked[i]] if i in picked else fact.value for i, fact in enumerate(facts))


def _origin(facts: tuple[Fact, ...]) -> tuple[Origin, ...]:
    fixed_facts = [fact for fact in facts if fact.status is not Status.DEFAULT]
    on = [fact for fact in fixed_facts if not fact.known or fact.value not in (False, None, "no", "none", 0)]
    for fact in (*on, *fixed_facts, *facts):
        return fact.origin
    return ()


def _span(facts: tuple[Fact, ...]) -> Any:
    return next((origin.span for fact in facts for origin in fact.origin if origin.span is not None), None)


def given(native: Native, *names: str) -> Fact | None:
    """The first of the named arguments that the input gives; an explicit null counts as absent."""
    for name in names:
        fact = native.get(name)
        if fact is not None and not (fact.known and fact.value is None):
            return fact
    return None


def rename(native: Native, table: Mapping[str, tuple[str, Callable[[Any], Any]]]) -> Facts:
    """The plain part of a dialect: canonical key -> (native name, conversion of its value)."""
    facts: Facts = {}
    for key, (name, convert) in table.items():
        fact = given(native, name)
        if fact is not None:
            facts[key] = derive(convert, fact)
    return facts


def soften(fact: Fact, note: str) -> Fact:
    """The same fact as a default: the input does not state it, it follows from what `fact` states.

    Its first origin is the note, not a place: a fix must not write the value where the other one stands.
    """
    status = Status.DEFAULT if fact.status is Status.FIXED else fact.status
    return fact._replace(status=status, origin=(Origin(None, note), *fact.origin))


# ---- conversions of values ----


def boolean(value: Any) -> bool:
    """A switch as frameworks and argument parsers take it (`transformers.hf_argparser.string_to_bool`)."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "t", "y", "1"):
        return True
    if text in ("false", "no", "off", "f", "n", "0"):
        return False
    raise Mistyped(f"{_short(value)} is not true or false")


def integer(value: Any) -> int:
    """A whole number; text such as `16` and floats such as `1e3` (YAML reads it as text) count."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _float(value, "a whole number")
    if number != int(number):
        raise Mistyped(f"{_short(value)} is not a whole number")
    return int(number)


def _float(value: Any, kind: str) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError(value)
        return float(value)
    except (TypeError, ValueError):
        raise Mistyped(f"{_short(value)} is not {kind}") from None


def number(value: Any) -> float | int:
    """A number; text is converted, as the frameworks convert it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    as_float = _float(value, "a number")
    return int(as_float) if as_float == int(as_float) and "." not in str(value) else as_float


def text(value: Any) -> str:
    """A text; anything else is refused."""
    if isinstance(value, str):
        return value
    raise ValueError(value)


def companions(value: Any) -> dict[str, str | None]:
    """`model.companions` of one model or of several, each in the dtype that its loader chooses."""
    return dict.fromkeys([value] if isinstance(value, str) else [text(name) for name in value])


def names(value: Any) -> list[str] | str:
    """A list of names, or the one text (a regex, `all-linear`) as it is."""
    if isinstance(value, str):
        return value
    return [str(item) for item in value]
