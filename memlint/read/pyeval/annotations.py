"""Options from annotated names: dataclass fields and function parameters, as HfArgumentParser, typer, fire and tyro read them."""

from __future__ import annotations

import ast
from collections.abc import Callable

from memlint.facts import Fact
from memlint.read.pyeval.options import TO_BOOL, TO_FLOAT, TO_INT, Option, guessed
from memlint.read.pyeval.values import Class, Field, Function, Opaque
from memlint.source import Span
from memlint.typed import NamedTuple


class Kind(NamedTuple):
    """What an annotation says: the converter of one word, whether it takes several, and its closed set."""

    convert: Callable[[Fact], Fact] | None
    many: bool = False
    boolean: bool = False
    choices: tuple[object, ...] = ()


_NAMED: dict[str, Kind] = {
    "int": Kind(TO_INT),
    "float": Kind(TO_FLOAT),
    "bool": Kind(TO_BOOL, boolean=True),
    "str": Kind(None),
    "Path": Kind(None),
}


def kind_of(annotation: ast.expr | None) -> Kind:
    """The kind of an annotation; unknown ones convert a word to what it looks like."""
    if annotation is None:
        return Kind(guessed)
    if isinstance(annotation, ast.Constant):
        if isinstance(annotation.value, str):
            try:
                return kind_of(ast.parse(annotation.value, mode="eval").body)
            except (SyntaxError, ValueError):
                return Kind(guessed)
        return Kind(guessed)
    name = annotation.attr if isinstance(annotation, ast.Attribute) else annotation.id if isinstance(annotation, ast.Name) else ""
    if name in _NAMED:
        return _NAMED[name]
    if name in {"list", "tuple", "List", "Tuple", "Sequence"}:
        return Kind(guessed, many=True)
    if isinstance(annotation, ast.BinOp):
        return _first_kind([annotation.left, annotation.right])
    if isinstance(annotation, ast.Subscript):
        outer = annotation.value
        outer_name = outer.attr if isinstance(outer, ast.Attribute) else outer.id if isinstance(outer, ast.Name) else ""
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if outer_name in {"Optional", "Union", "Annotated", "ClassVar", "Final"}:
            return _first_kind(inner)
        if outer_name == "Literal":
            values = tuple(e.value for e in inner if isinstance(e, ast.Constant))
            return Kind(guessed if not all(isinstance(v, str) for v in values) else None, choices=values)
        if outer_name in {"list", "tuple", "List", "Tuple", "Sequence", "Iterable"}:
            return Kind(kind_of(inner[0]).convert, many=True)
    return Kind(guessed)


def _first_kind(members: list[ast.expr]) -> Kind:
    rest = [m for m in members if not (isinstance(m, ast.Constant) and m.value is None)]
    return kind_of(rest[0]) if rest else Kind(guessed)


def field_options(cls: Class, *, dashes: bool = False, prefix: str = "") -> list[Option]:
    """The options of a dataclass's own fields."""
    return [_option(field, dashes, prefix) for field in cls.all_fields().values()]


def _option(field: Field, dashes: bool, prefix: str) -> Option:
    default = field.default
    if default is not None and isinstance(default.value, Opaque) and default.value.operation == "required":
        default = None
    made = option(f"{prefix}{field.name}", field.annotation, default, field.span, dashes=dashes)
    made.flags += tuple(alias if alias.startswith("-") else f"--{alias}" for alias in field.aliases)
    return made


def option(name: str, annotation: ast.expr | None, default: Fact | None, span: Span, *, dashes: bool = False) -> Option:
    """An option for an annotated name. `dashes` also accepts `--max-len` for `max_len`."""
    kind = kind_of(annotation)
    if annotation is None and default is not None and default.known and isinstance(default.value, bool):
        kind = _NAMED["bool"]
    flags = tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}" if dashes else f"--{name}")))
    offs: tuple[str, ...] = ()
    if kind.boolean:
        offs = tuple(dict.fromkeys((f"--no_{name}", f"--no-{name.replace('_', '-')}", f"--no{name}")))
    return Option(
        name,
        flags,
        span,
        default,
        required=default is None,
        convert=kind.convert,
        choices=kind.choices,
        action="switch" if kind.boolean else "store",
        nargs="+" if kind.many else None,
        off_flags=offs,
    )


def parameter_options(function: Function, span: Span, *, dashes: bool = True) -> list[Option]:
    """The options of a function's parameters; a parameter without default may also be given by position."""
    args = function.node.args
    positional = [*args.posonlyargs, *args.args]
    defaults = dict(zip([a.arg for a in positional][len(positional) - len(function.defaults) :], function.defaults, strict=True))
    defaults.update(function.kw_defaults)
    return [option(a.arg, a.annotation, defaults.get(a.arg), span, dashes=dashes) for a in [*positional, *args.kwonlyargs]]
