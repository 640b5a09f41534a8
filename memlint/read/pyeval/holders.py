"""Objects that hold settings and are no dict: `configparser`, `collections.ChainMap`, `wandb.config`."""

from __future__ import annotations

from collections.abc import Iterator

from memlint.facts import Fact, Origin, fixed
from memlint.read.pyeval.files import is_open_file, text_of
from memlint.read.pyeval.joins import Unknowable, combine, linked, merge, opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Call, Instance, Native, Symbol, Table
from memlint.source import Span
from memlint.typed import Any

PARSERS = frozenset({"configparser.ConfigParser", "configparser.RawConfigParser", "configparser.SafeConfigParser"})
SECTION = Symbol("configparser.SectionProxy")
CHAIN = Symbol("collections.ChainMap")
TRACKED = Symbol("wandb.Config")


def holder(machine: Machine, name: str, call: Call) -> Fact | None:
    """A new holder, or what fills one; None for any other name."""
    if name in PARSERS:
        return fixed(Instance(Symbol(name), call, {".texts": ()}), call.span)
    if name == "collections.ChainMap":
        return fixed(Instance(CHAIN, call, {".maps": call.args}), call.span)
    if name == "wandb.init":
        config = tracked(machine, call.span)
        _track(machine, config.value, call.kwargs.get("config"))
        return fixed(Instance(Symbol("wandb.Run"), call, {"config": config}), call.span)
    if name == "wandb.sweep":
        return call.argument("sweep", 0)
    if name == "wandb.agent":
        return _swept(machine, call)
    return None


def holder_method(machine: Machine, value: Instance, name: str, call: Call) -> Fact | None:
    """A method of a holder; None for any other."""
    kind = value.cls
    if isinstance(kind, Symbol) and kind.name in PARSERS:
        return _parser_method(machine, value, name, call)
    if kind == SECTION and call.args:
        parser, section = value.slots[".parser"], value.slots[".section"]
        if name in _GETTERS or name == "__getitem__":
            getter = "get" if name == "__getitem__" else name
            return _option(parser, section, getter, call.args[0], call.argument("fallback", 1), call.span)
    if kind == CHAIN and name in {"__getitem__", "get"} and call.args:
        otherwise = (call.argument("default", 1) or fixed(None, call.span)) if name == "get" else None
        return _chained(value, call.args[0], otherwise, call.span)
    if kind == TRACKED and name == "update":
        _track(machine, value, call.argument("d", 0))
        return fixed(None, call.span)
    if kind == TRACKED and name == "get" and call.args and isinstance(call.args[0].value, str):
        found = value.slots.get(call.args[0].value)
        return found if isinstance(found, Fact) else call.argument("default", 1)
    return None


# --- configparser ---------------------------------------------------------------------------------------------------

_GETTERS = frozenset({"get", "getint", "getfloat", "getboolean"})


def _parser_method(machine: Machine, parser: Instance, name: str, call: Call) -> Fact | None:
    texts: tuple[Fact, ...] = parser.slots[".texts"]
    if name in {"read", "read_file", "read_string"} and call.args:
        given = call.args[0]
        sources = given.value.items if isinstance(given.value, Array) else (given,)
        read = tuple(source if name == "read_string" else _content(machine, source, call.span) for source in sources)
        machine.write(parser, ".texts", (*texts, *read))
        return fixed(None, call.span)
    if name in {"read_dict", "set", "__setitem__"}:
        machine.write(parser, ".texts", (*texts, opaque("the parser is changed by the script", "option", call.args, call.span)))
        return fixed(None, call.span)
    if name in _GETTERS and len(call.args) > 1:
        return _option(parser, call.args[0], name, call.args[1], call.kwargs.get("fallback"), call.span)
    if name == "__getitem__" and call.args:
        return fixed(Instance(SECTION, call, {".parser": parser, ".section": call.args[0]}), call.span)
    return None


def _content(machine: Machine, source: Fact, span: Span) -> Fact:
    return text_of(machine, source.value.slots[".path"] if is_open_file(source.value) else source, span)


def _option(parser: Instance, section: Fact, getter: str, name: Fact, fallback: Fact | None, span: Span) -> Fact:
    """One option, read as the real parser reads the texts that it was given."""
    import configparser

    texts: tuple[Fact, ...] = parser.slots[".texts"]
    if not texts:
        return opaque("the parser has read no file", "option", (name,), span)
    settings = {key: _constructed(fact) for key, fact in parser.call.kwargs.items()}
    own = settings.pop("interpolation", "")
    if parser.call.args or settings.keys() - {"allow_no_value", "inline_comment_prefixes", "comment_prefixes", "strict"}:
        return opaque("the parser is made with options that are not followed", "option", (name,), span)
    basic = own == "" and not parser.library.endswith("RawConfigParser")

    def look(where: Any, option: Any, *contents: Any) -> Any:
        read = (configparser.ConfigParser if basic else configparser.RawConfigParser)(**settings)
        try:
            for content in contents:
                read.read_string(content)
            found = getattr(read, getter)(where, option)
        except (configparser.NoSectionError, configparser.NoOptionError) as error:
            if fallback is not None and fallback.known:
                return fallback.value
            raise Unknowable(f"the settings file does not have it: {error}") from None
        except (configparser.Error, ValueError, TypeError, AttributeError) as error:
            raise Unknowable(f"the settings file does not give it: {error}") from None
        if own not in ("", None) and isinstance(found, str) and "$" in found:
            raise Unknowable("it refers to another option")
        return found

    found = combine(look, (section, name, *texts), span, "option")
    place = _line(texts, str(name.value)) if found.known else None
    return found._replace(origin=(Origin(place, "settings file"), Origin(span))) if place is not None else found


def _constructed(fact: Fact) -> Any:
    """An argument of the parser's constructor as it is; an object (`ExtendedInterpolation()`) stands for itself."""
    if isinstance(fact.value, Array):
        return tuple(item.value for item in fact.value.items)
    return fact.value


def _line(texts: tuple[Fact, ...], option: str) -> Span | None:
    """The last line that sets the option, in the last file that does."""
    for text in reversed(texts):
        file = text.origin[0] if text.origin else Origin(None)
        rows = text.value.splitlines() if isinstance(text.value, str) and file.note == "file content" else []
        for number in range(len(rows), 0, -1):
            row = rows[number - 1]
            if row.replace(":", "=").partition("=")[0].strip().lower() == option.lower() and file.span is not None:
                return Span(file.span.path, number, 1, number, len(row) + 1)
    return None


# --- ChainMap -------------------------------------------------------------------------------------------------------


def _chained(chain: Instance, key: Fact, otherwise: Fact | None, span: Span) -> Fact:
    """The value of the first mapping that has the key."""
    for mapping in chain.slots[".maps"]:
        table = mapping.value if mapping.known else None
        if not isinstance(table, Table) or not key.known:
            return opaque(mapping.reason or key.reason or "one of the mappings is not followed", "item", (mapping, key), span)
        if key.value in table.slots:
            return linked(table.slots[key.value], span, "the first mapping that has it")
        if table.open:
            return opaque(table.open, "item", (mapping, key), span)
    return otherwise or opaque(f"no mapping has {key.value!r}", "item", (key,), span)


# --- wandb ----------------------------------------------------------------------------------------------------------


def tracked(machine: Machine, span: Span) -> Fact:
    """`wandb.config`, which exists once in a process."""
    if "wandb.config" not in machine.flags:
        machine.flags["wandb.config"] = fixed(Instance(TRACKED, Call("wandb.config", (), {}, span)), span)
    return machine.flags["wandb.config"]


def _track(machine: Machine, config: Instance, given: Fact | None) -> None:
    """Add settings; those of a sweep win over what the script gives."""
    for key, fact in _entries(given):
        if f".sweep:{key}" not in config.slots:
            machine.write(config, key, linked(fact, config.call.span, "wandb.config"))


def _entries(given: Fact | None) -> Iterator[tuple[str, Fact]]:
    value = given.value if given is not None and given.known else None
    rows = value.entries() if isinstance(value, Table) else value.slots.items() if isinstance(value, Instance) else ()
    return ((key, fact) for key, fact in rows if isinstance(key, str) and key[:1] != "." and isinstance(fact, Fact))


def _swept(machine: Machine, call: Call) -> Fact:
    """`wandb.agent(sweep_id, function)`: the function runs with each drawing from the sweep's parameters."""
    sweep, function = call.argument("sweep_id", 0), call.argument("function", 1)
    config = tracked(machine, call.span)
    for section, parameters in _entries(sweep):
        for key, fact in _entries(parameters) if section == "parameters" else ():
            machine.write(config.value, f".sweep:{key}", True)
            machine.write(config.value, key, _drawn(fact, call.span))
    if function is None or isinstance(function.value, (str, Native)):
        return fixed(None, call.span)
    return machine.call(function, Call("agent", (), {}, call.span))


def _drawn(parameter: Fact, span: Span) -> Fact:
    table = parameter.value if isinstance(parameter.value, Table) else Table()
    if "value" in table.slots:
        given: Fact = table.slots["value"]
        return given
    values = table.slots.get("values")
    if values is not None and isinstance(values.value, Array) and values.value.items:
        return merge(values.value.items, reason="the sweep draws it")
    return opaque("the sweep draws it from a range", "sweep", (parameter,), span)
