"""The names of `typing` that exist at run time, without loading `typing`: the hook path is short, and `typing` is long.

Annotations are strings everywhere (`from __future__ import annotations`), so `Any` and `Protocol` need no meaning while
memlint runs. `NamedTuple` does: here it makes the same classes as `typing.NamedTuple` in a tenth of the time, because it neither
evaluates annotations nor compiles a constructor for each class. Type checkers see the originals.
"""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]  # what `collections.namedtuple` makes its fields of
from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple, NoReturn, Protocol, TextIO
else:

    class Any:
        """Stands in annotations only."""

    NoReturn = TextIO = Any

    class Protocol:
        """A base without a meaning of its own: protocols are for the type checker."""

    class _Record(type):
        """Turns a class of annotated fields into a tuple whose places have names."""

        def __new__(meta, name, bases, members):
            fields = tuple(members.get("__annotations__", ()))
            defaults = tuple(members[field] for field in fields if field in members)
            for place, field in enumerate(fields):
                members[field] = _tuplegetter(place, None)
            made = FunctionType(_constructor(len(fields)).replace(co_varnames=("_cls", *fields)), _GLOBALS, "__new__", defaults)
            shared = {"__slots__": (), "__new__": made, "_fields": fields, "__match_args__": fields}
            return type(name, (tuple,), {**_METHODS, **members, **shared})

    NamedTuple = type.__new__(_Record, "NamedTuple", (), {})

    _GLOBALS = {"_new": tuple.__new__}
    _CONSTRUCTORS = {}

    def _constructor(count):
        """The code of `__new__` for so many fields, compiled once; a class puts the names of its fields in."""
        if count not in _CONSTRUCTORS:
            names = "".join(f"_{place}," for place in range(count))
            _CONSTRUCTORS[count] = eval(f"lambda _cls, {names}: _new(_cls, ({names}))").__code__
        return _CONSTRUCTORS[count]

    def _make(cls, values):
        return tuple.__new__(cls, values)

    def _replace(self, /, **changes):
        made = tuple.__new__(type(self), map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"no such fields: {list(changes)!r}")
        return made

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def _repr(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    _METHODS = {
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": _asdict,
        "__repr__": _repr,
        "__getnewargs__": lambda self: tuple(self),
    }

__all__ = ["TYPE_CHECKING", "Any", "NamedTuple", "NoReturn", "Protocol", "TextIO"]
