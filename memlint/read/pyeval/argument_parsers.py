"""argparse, and the parsers that fill dataclasses: HfArgumentParser, TrlParser, simple-parsing."""

from __future__ import annotations

from collections.abc import Callable

from memlint.facts import Fact, Status, choices, fixed
from memlint.read.pyeval.annotations import field_options
from memlint.read.pyeval.calls import call_value
from memlint.read.pyeval.construction import fill_record
from memlint.read.pyeval.documents import load_document
from memlint.read.pyeval.files import text_of
from memlint.read.pyeval.joins import constant, linked, merge, opaque, weaken
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.options import NOWHERE, Option, Words, abbreviated, guessed, read_words, settle, split_at
from memlint.read.pyeval.sequences import sequence
from memlint.read.pyeval.values import Array, Call, Class, Instance, Symbol, Table
from memlint.typed import Any

PARSERS = frozenset({"ArgumentParser", "ArgParser", "HfArgumentParser", "TrlParser", "H4ArgumentParser", "ArgumentParserPlus"})
FROM_WORDS = frozenset({"parse_args_into_dataclasses", "parse_args_and_config"})
"""Methods that fill dataclasses from the command line."""


def new_parser(machine: Machine, name: str, call: Call) -> Fact:
    """A parser object."""
    parser = Instance(Symbol(name), call)
    parents = call.kwargs.get("parents")
    for parent in (sequence(parents.value) or []) if parents is not None and parents.known else []:
        if isinstance(parent.value, Instance):
            parser.slots.update({k: v for k, v in parent.value.slots.items() if str(k).startswith(".option:")})
    types = call.argument("dataclass_types", 0)
    if types is not None and name.rpartition(".")[2] != "ArgumentParser":
        parser.slots[".types"] = types
    return fixed(parser, call.span)


def parser_method(machine: Machine, parser: Instance, name: str, call: Call) -> Fact | None:
    """A method of a parser or of its sub-parsers object."""
    handler = _METHODS.get(name)
    return handler(machine, parser, call) if handler is not None else None


def _add_argument(machine: Machine, parser: Instance, call: Call) -> Fact:
    names = [a.value for a in call.args if a.known and isinstance(a.value, str)]
    flags = tuple(n for n in names if n.startswith("-"))
    dest_fact = call.kwargs.get("dest")
    if dest_fact is not None and dest_fact.known:
        dest = str(dest_fact.value)
    else:
        longest = next((f for f in flags if f.startswith("--")), flags[0] if flags else names[0] if names else "")
        dest = longest.lstrip("-").replace("-", "_") if flags else longest
    if not dest:
        return fixed(None)
    option = _option(machine, dest, flags, call)
    option.default = option.default or parser.call.kwargs.get("argument_default")
    key = f".option:{dest}"
    machine.write(parser, key if key not in parser.slots else f"{key} {' '.join(flags)}", option)  # several flags may set one
    return fixed(None, call.span)


_ACTIONS = {
    "store_true": "true",
    "store_false": "false",
    "store_const": "const",
    "append": "append",
    "extend": "append",
    "count": "count",
}


def _option(machine: Machine, dest: str, flags: tuple[str, ...], call: Call) -> Option:
    action_fact = call.kwargs.get("action")
    action = action_fact.value if action_fact is not None and action_fact.known else "store"
    kind = call.kwargs.get("type")
    nargs_fact = call.kwargs.get("nargs")
    nargs = nargs_fact.value if nargs_fact is not None and isinstance(nargs_fact.value, (int, str)) else None
    choice_fact = call.kwargs.get("choices")
    members = (sequence(choice_fact.value) or []) if choice_fact is not None and choice_fact.known else []
    closed = tuple(m.value for m in members if m.known and constant(m.value))
    required = call.kwargs.get("required")
    option = Option(
        dest, flags, call.span,
        default=call.kwargs.get("default"),
        required=bool(required is not None and required.known and required.value) or (not flags and nargs not in ("?", "*")),
        convert=_typed(machine, kind) if kind is not None else None,
        choices=closed,
        action=_ACTIONS.get(action, "store") if isinstance(action, str) else "store",
        nargs=nargs,
        const=call.kwargs.get("const"),
    )  # fmt: skip
    if isinstance(action, Symbol) and action.name.endswith("BooleanOptionalAction"):
        option.action = "boolean"
        option.off_flags = tuple(f"--no-{flag[2:]}" for flag in flags if flag.startswith("--"))
    return option


def _typed(machine: Machine, kind: Fact) -> Callable[[Fact], Fact]:
    def convert(word: Fact) -> Fact:
        if isinstance(kind.value, Symbol) and kind.value.name == "builtins.bool":
            made = guessed(word)  # bool("False") is True: argparse's trap
            return fixed(bool(word.value)) if word.known else made
        return call_value(machine, kind, Call("type", (word,), {}, word.origin[0].span or NOWHERE if word.origin else NOWHERE))

    return convert


def _same_parser(machine: Machine, parser: Instance, call: Call) -> Fact:
    return fixed(parser, call.span)


def _set_defaults(machine: Machine, parser: Instance, call: Call) -> Fact:
    for name, fact in call.kwargs.items():
        machine.write(parser, f".default:{name}", fact)
    return fixed(None)


def _add_subparsers(machine: Machine, parser: Instance, call: Call) -> Fact:
    dest = call.kwargs.get("dest")
    made = Instance(Symbol("argparse.SubParsers"), call, {".dest": dest.value if dest is not None and dest.known else ""})
    machine.write(parser, ".subparsers", fixed(made))
    return fixed(made, call.span)


def _add_parser(machine: Machine, parser: Instance, call: Call) -> Fact:
    made = new_parser(machine, "argparse.ArgumentParser", call)
    others = call.kwargs.get("aliases")
    named = [call.args[0], *((sequence(others.value) or []) if others is not None and others.known else [])] if call.args else []
    for name in named:
        if name.known:
            machine.write(parser, f".parser:{name.value}", made)
    return made


def given_words(machine: Machine, call: Call) -> tuple[list[Fact], bool]:
    """The words to read, and whether they are those of a launch."""
    given = call.argument("args", 0)
    if given is not None and not (given.known and given.value is None):
        members = sequence(given.value) if given.known else None
        return (members or [], members is not None)
    if machine.launch is None:
        return [], False
    return list(machine.launch.argv), True


def _from_files(machine: Machine, parser: Instance, words: list[Fact]) -> tuple[list[Fact], str]:
    """The words with those of `@file` in its place (`fromfile_prefix_chars`), and why some are not known."""
    prefixes = parser.call.kwargs.get("fromfile_prefix_chars")
    if prefixes is None or not isinstance(prefixes.value, str):
        return words, ""
    found: list[Fact] = []
    unread = ""
    for word in words:
        if not word.known or not isinstance(word.value, str) or not word.value.startswith(tuple(prefixes.value)):
            found.append(word)
            continue
        content = text_of(machine, word.with_value(word.value[1:]), parser.call.span)
        if not content.known:
            found, unread = [], content.reason  # it may override what stands before it
            continue
        splits = isinstance(parser.cls, Class) and parser.cls.find("convert_arg_line_to_args") is not None
        lines = content.value.split() if splits else content.value.splitlines()
        found += [content.with_value(line) for line in lines]
    return found, unread


def _options(parser: Instance) -> list[Option]:
    return [v for k, v in parser.slots.items() if isinstance(v, Option) and str(k).startswith(".option:")]


def _parse(machine: Machine, parser: Instance, words: list[Fact], launched: bool) -> tuple[dict[str, Fact], Words]:
    options = _options(parser)
    words, unread = _from_files(machine, parser, words)
    prefixes = _abbreviates(parser)
    subparsers = parser.slots.get(".subparsers")
    read = Words()
    values: dict[str, Fact] = {}
    if subparsers is not None:
        names = {str(k).removeprefix(".parser:") for k in subparsers.value.slots if str(k).startswith(".parser:")}
        own, chosen, rest = split_at(words, options, names)
        read = read_words(options, own, prefixes=prefixes)
        values = settle(options, read, launched)
        values.update(_subcommand(machine, subparsers.value, chosen, rest, launched))
    else:
        read = read_words(options, words, prefixes=prefixes)
        read.open = unread
        values = settle(options, read, launched)
    for key, fact in parser.slots.items():
        name = str(key).removeprefix(".default:")
        if str(key).startswith(".default:") and name not in read.values:
            values[name] = weaken(fact) if constant(fact.value) else fact
    return values, read


def _abbreviates(parser: Instance) -> bool:
    """argparse completes unique abbreviations unless `allow_abbrev=False`."""
    allowed = parser.call.kwargs.get("allow_abbrev")
    return allowed is None or allowed.value is not False


def _subcommand(machine: Machine, subparsers: Instance, chosen: str, rest: list[Fact], launched: bool) -> dict[str, Fact]:
    parsers = {str(k).removeprefix(".parser:"): v for k, v in subparsers.slots.items() if str(k).startswith(".parser:")}
    dest = subparsers.slots.get(".dest")
    values: dict[str, Fact] = {}
    if chosen:
        values, _ = _parse(machine, parsers[chosen].value, rest, launched)
        if dest:
            values[dest] = fixed(chosen, subparsers.call.span)
        return values
    parsers = {name: p for name, p in parsers.items() if next(n for n, q in parsers.items() if q is p) == name}  # without aliases
    sets = [_parse(machine, p.value, [], False)[0] for p in parsers.values() if isinstance(p.value, Instance)]
    for name in dict.fromkeys(name for one in sets for name in one):
        values[name] = merge([one[name] for one in sets if name in one])
    if dest and parsers:
        values[dest] = choices(parsers, subparsers.call.span, "the sub-commands")
    return values


def _parse_args(machine: Machine, parser: Instance, call: Call) -> Fact:
    if ".types" in parser.slots:
        return _into_dataclasses(machine, parser, call)
    words, launched = given_words(machine, call)
    values, _ = _parse(machine, parser, words, launched)
    slots: dict[Any, Any] = {k: linked(v, call.span, "parsed here") for k, v in values.items()}
    for key, made in parser.slots.items():
        if str(key).startswith(".record:"):
            slots[str(key).removeprefix(".record:")] = _record(machine, made, words, launched, call)
    slots[".parsed"] = True
    return fixed(Instance(Symbol("argparse.Namespace"), call, slots), call.span)


def _parse_known(machine: Machine, parser: Instance, call: Call) -> Fact:
    """The parsed words, and of those that are left the settings (`a.b=c`)."""
    launch = machine.launch
    left = [w for w in launch.argv if w.known and "=" in str(w.value) and not str(w.value).startswith("-")] if launch else []
    rest = Array(left, open_="" if launch is not None else "the launch may give further words")
    return fixed(Array((_parse_args(machine, parser, call), fixed(rest)), "tuple"), call.span)


# --- dataclasses ----------------------------------------------------------------------------------------------------


def _add_arguments(machine: Machine, parser: Instance, call: Call) -> Fact:
    """simple-parsing: a dataclass under a destination."""
    dest = call.argument("dest", 1)
    if call.args and dest is not None and dest.known:
        machine.write(parser, f".record:{dest.value}", call.args[0])
    return fixed(None)


def _record(machine: Machine, cls: Fact, words: list[Fact], launched: bool, call: Call) -> Fact:
    return fill(machine, cls, read_words(own_options(cls), words), launched, call)


def own_options(cls: Fact, dashes: bool = True) -> list[Option]:
    """The options that a dataclass of the script declares; none for a library's."""
    return field_options(cls.value, dashes=dashes) if isinstance(cls.value, Class) else []


def _types(parser: Instance) -> list[Fact]:
    types = parser.slots[".types"]
    return sequence(types.value) or [] if isinstance(types.value, Array) else [types]


def _into_dataclasses(machine: Machine, parser: Instance, call: Call) -> Fact:
    words, launched = given_words(machine, call)
    if launched and len(words) == 1 and words[0].known and str(words[0].value).endswith((".json", ".yaml", ".yml")):
        # not what HfArgumentParser does by itself, but its documented idiom; the script's own branch decides
        words = []
    config = _config_values(machine, words) if _reads_config(parser) else {}
    types = _types(parser)
    options = [own_options(cls) for cls in types]
    read = read_words([*_options(parser), *(o for own in options for o in own)], words, prefixes=_abbreviates(parser))
    if _abbreviates(parser):
        names = [name for cls in types for name in machine.library.fields(_library_name(cls))]
        read.extras = {f"--{abbreviated(_plain(flag), names)}": given for flag, given in read.extras.items()}
    made = [fill(machine, cls, read, launched, call, config) for cls in types]
    rest = call.kwargs.get("return_remaining_strings") or call.kwargs.get("return_remaining_args")
    if rest is not None and rest.known and rest.value is True:
        made.append(fixed(Array(read.rest), call.span))
    return fixed(Array(made, "tuple"), call.span)


def _library_name(cls: Fact) -> str:
    """The library class that a dataclass is, or extends."""
    value = cls.value
    names = [base.name for base in value.lineage() if isinstance(base, Symbol)] if isinstance(value, Class) else []
    return value.name if isinstance(value, Symbol) else next(iter(names), "")


def _plain(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _reads_config(parser: Instance) -> bool:
    return parser.library.rpartition(".")[2] in {"TrlParser", "H4ArgumentParser"}


def _config_values(machine: Machine, words: list[Fact]) -> dict[str, Fact]:
    for index, word in enumerate(words):
        if not word.known or not isinstance(word.value, str):
            continue
        name, sep, inline = word.value.partition("=")
        path = None
        if name == "--config":
            path = Fact(inline, word.status, word.origin) if sep else words[index + 1] if index + 1 < len(words) else None
        elif index == 0 and word.value.endswith((".yaml", ".yml")):
            path = word
        if path is not None:
            document = load_document(machine, path, path.origin[0].span or NOWHERE if path.origin else NOWHERE)
            return dict(document.value.entries()) if isinstance(document.value, Table) else {}
    return {}


def fill(machine: Machine, cls: Fact, read: Words, launched: bool, call: Call, config: dict[str, Fact] | None = None) -> Fact:
    """A dataclass (of the script or of a library) filled from words, then a config, then its defaults."""
    own = own_options(cls)
    names = {option.dest for option in own}
    values: dict[str, Fact] = dict(config or {})
    loose = {_plain(flag): _loose(words) for flag, words in read.extras.items() if flag != "--config"}
    values.update({name.removeprefix("no_") if _negates(name, facts) else name: facts for name, facts in loose.items()})
    for option in own:
        if option.dest in read.values:
            values[option.dest] = read.values[option.dest]
        elif option.dest in values and option.convert is not None and isinstance(values[option.dest].value, str):
            values[option.dest] = option.convert(values[option.dest])
        elif option.dest not in values:
            values.update(settle([option], Words(), launched))
    made = Call(call.name, (), values if not isinstance(cls.value, Class) else {}, call.span)
    if isinstance(cls.value, Class):
        instance = Instance(cls.value, made)
        extra = {k: v for k, v in values.items() if k in names or instance.library}
        fill_record(machine, instance, made, extra)
        return fixed(instance, call.span)
    return call_value(machine, cls, made)


def _negates(name: str, fact: Fact) -> bool:
    return name.startswith("no_") and fact.known and fact.value is False


def _loose(words: list[Fact]) -> Fact:
    converted = [guessed(word) for word in words]
    if len(converted) == 1:
        return converted[0]
    return Fact(Array(converted), Status.FIXED, words[0].origin)


def _from_file(machine: Machine, parser: Instance, call: Call) -> Fact:
    path = call.argument("yaml_file", 0) or call.argument("json_file", 0)
    document = load_document(machine, path, call.span) if path is not None else opaque("no file", "file")
    return _from_values(machine, parser, document, call)


def _from_dict(machine: Machine, parser: Instance, call: Call) -> Fact:
    return _from_values(machine, parser, call.argument("args", 0) or opaque("no dict", "dict"), call)


def _from_values(machine: Machine, parser: Instance, values: Fact, call: Call) -> Fact:
    if ".types" not in parser.slots:
        return opaque("the parser's dataclasses are not known", "parse", (), call.span)
    given = dict(values.value.entries()) if isinstance(values.value, Table) else {}
    made: list[Fact] = []
    for cls in _types(parser):
        if not isinstance(values.value, Table):
            inner = Call(call.name, (), {}, call.span, values.reason or "a file that is not read")
            made.append(call_value(machine, cls, inner))
        else:
            made.append(fill(machine, cls, Words(), False, call, {str(k): v for k, v in given.items()}))
    return fixed(Array(made, "tuple"), call.span)


_METHODS: dict[str, Callable[[Machine, Instance, Call], Fact]] = {
    "add_argument": _add_argument,
    "add": _add_argument,
    "add_argument_group": _same_parser,
    "add_mutually_exclusive_group": _same_parser,
    "set_defaults": _set_defaults,
    "add_subparsers": _add_subparsers,
    "add_parser": _add_parser,
    "parse_args": _parse_args,
    "parse_known_args": _parse_known,
    "parse_intermixed_args": _parse_args,
    "add_arguments": _add_arguments,
    "parse_args_into_dataclasses": _into_dataclasses,
    "parse_args_and_config": _into_dataclasses,
    "parse": _parse_args,
    "parse_yaml_file": _from_file,
    "parse_json_file": _from_file,
    "parse_dict": _from_dict,
}
