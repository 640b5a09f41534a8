"""The door to every command line, and those of fire, absl and fastcore, which add little to reading a signature.

`CommandLines` is the `Library` that knows command lines and configuration files; the framework models build on it.
"""

from __future__ import annotations

from memlint.facts import Fact, Origin, Status, fixed
from memlint.later import later
from memlint.read.pyeval.annotations import parameter_options
from memlint.read.pyeval.argument_parsers import PARSERS, new_parser, parser_method
from memlint.read.pyeval.calls import call_value
from memlint.read.pyeval.documents import load_document, written, written_document
from memlint.read.pyeval.files import file_method, is_open_file
from memlint.read.pyeval.holders import holder, holder_method, tracked
from memlint.read.pyeval.joins import merge
from memlint.read.pyeval.machine import Library, Machine
from memlint.read.pyeval.options import TO_BOOL, TO_FLOAT, TO_INT, Option, comma_separated, is_flag, read_words, settle
from memlint.read.pyeval.values import Array, Call, Class, Function, Instance, Native, Symbol, Table
from memlint.source import Kind, Span
from memlint.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.read.pyeval import click_commands, hydra, signatures, tap
else:  # a script has one command line, and most have argparse's
    click_commands, hydra, signatures, tap = later("memlint.read.pyeval", "click_commands", "hydra", "signatures", "tap")

_CLI_ROOTS = frozenset({"click", "rich_click", "asyncclick", "typer", "fire", "tyro", "absl", "fastcore", "simple_parsing",
                        "jsonargparse", "hydra", "omegaconf", "defopt", "cyclopts", "pydantic_settings"})  # fmt: skip
_FORMATS = frozenset({"yaml", "json", "ruamel", "tomllib", "tomli", "toml"})
_RUAMEL = "ruamel.yaml.YAML"


def _document(machine: Machine, root: str, tail: str, call: Call) -> Fact:
    """`yaml.safe_load(file)`, `json.load(file)`, and `json.loads(text)` of a text that the script itself writes."""
    given = call.args[0]
    if given.known and isinstance(given.value, str) and not any(o.note == "file content" for o in given.origin):
        if root == "json" and tail == "loads" and "{" in given.value:
            return written(given, call.span)
        if (root in {"yaml", "ruamel"} and ": " in given.value) or (root in {"tomllib", "tomli", "toml"} and tail == "loads"):
            return written_document(given, Kind.YAML if root in {"yaml", "ruamel"} else Kind.TOML, call.span)
    return load_document(machine, given, call.span)


class CommandLines(Library):
    """Models of command-line parsers and of YAML and JSON loading."""

    def call(self, machine: Machine, name: str, call: Call) -> Fact | None:
        """See `Library.call`."""
        root, _, rest = name.partition(".")
        tail = rest.rpartition(".")[2] or root
        if tail in PARSERS:
            return new_parser(machine, name, call)
        if (root, tail) == ("asyncio", "run") and call.args:
            return call.args[0]  # a coroutine is walked where it is called
        if root in _FORMATS and tail in {"safe_load", "load", "full_load", "unsafe_load", "loads"}:
            return _document(machine, root, tail, call) if call.args else None
        if name == _RUAMEL:
            return fixed(Instance(Symbol(name), call), call.span)
        if root in {"configparser", "collections", "wandb"}:
            return holder(machine, name, call)
        if root not in _CLI_ROOTS:
            return None
        if root == "omegaconf":
            return hydra.omegaconf(machine, tail, call)
        if root in {"click", "rich_click", "asyncclick"}:
            return click_commands.click_object(machine, tail, call)
        if root == "typer":
            if tail == "run" and call.args:
                return signatures.run_signature(machine, call.args[0], call.span)
            if tail in {"Option", "Argument"}:
                return click_commands.typer_default(call)
            return fixed(Instance(Symbol(f"typer.{tail}"), call), call.span) if tail == "Typer" else None
        if root == "fire" and tail == "Fire":
            return _fire(machine, call)
        if (root, tail) in {("tyro", "cli"), ("simple_parsing", "parse"), ("jsonargparse", "CLI"), ("jsonargparse", "auto_cli"),
                            ("defopt", "run"), ("cyclopts", "run")} and call.args:  # fmt: skip
            return signatures.from_type(machine, call.args[0], call)
        if root == "hydra" and name.endswith("ConfigStore.instance"):
            return fixed(Instance(Symbol("hydra.ConfigStore"), call), call.span)
        if root == "hydra" and tail == "main":
            return fixed(Instance(Symbol("hydra.main"), call, {".wraps": "hydra"}), call.span)
        if root == "absl":
            return _absl(machine, tail, call)
        if root == "fastcore" and tail == "Param":
            return call.argument("default", 3)
        if root == "fastcore" and tail == "call_parse" and not call.args:
            return fixed(Symbol(name), call.span)
        return None

    def method(self, machine: Machine, owner: Fact, name: str, call: Call) -> Fact | None:
        """See `Library.method`."""
        value = owner.value
        if isinstance(value, Instance) and value.library.startswith("tap.") and tap.is_tap(value):
            return tap.tap_method(machine, owner, value, name, call)
        if isinstance(value, Instance) and (held := holder_method(machine, value, name, call)) is not None:
            return held
        if not isinstance(value, Instance) or not isinstance(value.cls, Symbol):
            return None
        if is_open_file(value):
            return file_method(machine, value, name, call)
        if value.cls.name == _RUAMEL and name == "load" and call.args:
            return load_document(machine, call.args[0], call.span)
        tail = value.cls.name.rpartition(".")[2]
        if tail in PARSERS or tail == "SubParsers":
            return parser_method(machine, value, name, call)
        if tail == "ConfigStore" and name == "store":
            return hydra.store(machine, call)
        if value.cls.name == "click.Context":
            return click_commands.context_method(machine, value, name, call)
        if tail == "Typer":
            return click_commands.typer_method(machine, owner, value, name, call)
        if tail in {"Command", "Group"}:
            return click_commands.command_method(machine, owner, value, name, call)
        return None

    def decorate(self, machine: Machine, decorator: Fact, target: Fact, span: Span) -> Fact | None:
        """See `Library.decorate`."""
        value = decorator.value
        if isinstance(value, Instance) and ".wraps" in value.slots:
            wraps = value.slots[".wraps"]
            return click_commands.wrapped(machine, wraps, target, value) if isinstance(wraps, str) else None
        name = value.name if isinstance(value, Symbol) else ""
        if name.endswith("call_parse"):
            return _parsed_function(machine, target, span)
        if name in {"click.command", "click.group"}:
            return click_commands.wrapped(machine, name.rpartition(".")[2], target, Instance(value, Call(name, (), {}, span)))
        return None

    def symbol(self, machine: Machine, name: str, span: Span) -> Fact | None:
        """See `Library.symbol`."""
        if name == "sys.argv":
            return _argv(machine, span)
        if name.startswith("absl.flags.FLAGS."):
            return machine.flags.get(name.rpartition(".")[2])
        if name == "wandb.config":
            return tracked(machine, span)
        if name in _CONSTANTS:
            return fixed(_CONSTANTS[name], span)
        return None


_CONSTANTS = {"math.pi": 3.141592653589793, "math.inf": float("inf"), "sys.platform": "linux", "os.name": "posix", "os.sep": "/",
              "torch.version.hip": None, "typing.TYPE_CHECKING": False}  # fmt: skip


def _argv(machine: Machine, span: Span) -> Fact:
    """`sys.argv`: the words of the launch; without one, only the script's own name, which a launch may extend."""
    script = fixed(machine.root, span)
    if machine.launch is None:
        return Fact(Array((script,)), Status.DEFAULT, (Origin(span, "no launch is known"),))
    more = "the launch passes its own arguments on" if getattr(machine.launch, "passthrough", False) else ""
    return fixed(Array((script, *machine.launch.argv), "list", more if not machine.launch.argv else ""), span)


# --- fire, tyro, absl, fastcore -------------------------------------------------------------------------------------


def _fire(machine: Machine, call: Call) -> Fact | None:
    target = call.argument("component", 0)
    words, _ = signatures.launched_words(machine)
    if target is None:
        scope = machine.frame.scope.globals.slots
        functions = {k: f for k, f in scope.items() if isinstance(f, Fact) and isinstance(f.value, Function)}
        return _pick(machine, functions, words, call)
    if isinstance(target.value, Table):
        return _pick(machine, {str(k): f for k, f in target.value.entries()}, words, call)
    if isinstance(target.value, Class):
        return _fire_class(machine, target.value, words, call)
    if isinstance(target.value, Instance) and isinstance(target.value.cls, Class):
        return _member(machine, target, target.value.cls, words, call)
    return signatures.run_signature(machine, target, call.span)


def _fire_class(machine: Machine, cls: Class, words: list[Fact], call: Call) -> Fact | None:
    """The constructor takes its own flags wherever they stand; the first other word names the method, which gets the rest."""
    constructor = cls.find("__init__")
    options = (
        parameter_options(constructor.value, call.span)[1:] if constructor and isinstance(constructor.value, Function) else []
    )
    flags = {flag: option for option in options for flag in (*option.flags, *option.off_flags)}
    own: list[Fact] = []
    rest: list[Fact] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        name, sep, _ = str(word.value).partition("=") if is_flag(word) else ("", "", "")
        taken = own if name in flags else rest
        taken.append(word)
        if name in flags and not sep and queue and not is_flag(queue[0]) and name in flags[name].flags:
            own.append(queue.pop(0))
    values = settle(options, read_words(options, own, prefixes=False), machine.launch is not None)
    made = call_value(machine, fixed(cls, call.span), Call(cls.name, (), values, call.span))
    return _member(machine, made, cls, rest, call)


def _member(machine: Machine, owner: Fact, cls: Class, words: list[Fact], call: Call) -> Fact | None:
    for index, word in enumerate(words):
        method = cls.find(str(word.value).replace("-", "_")) if word.known and not is_flag(word) else None
        if method is not None and isinstance(method.value, Function):
            return signatures.run_signature(machine, method, call.span, words[:index] + words[index + 1 :], owner=owner)
    return owner


def _pick(machine: Machine, functions: dict[str, Fact], words: list[Fact], call: Call) -> Fact | None:
    name = str(words[0].value) if words and words[0].known else ""
    chosen = functions.get(name) or functions.get(name.replace("-", "_"))
    if chosen is not None:
        return signatures.run_signature(machine, chosen, call.span, words[1:])
    results = (
        [r for f in functions.values() if (r := signatures.run_signature(machine, f, call.span, [])) is not None]
        if not words
        else []
    )
    return merge(results) if results else None


_ABSL = {"DEFINE_integer": TO_INT, "DEFINE_float": TO_FLOAT, "DEFINE_bool": TO_BOOL, "DEFINE_boolean": TO_BOOL,
         "DEFINE_string": None, "DEFINE_enum": None, "DEFINE_list": comma_separated, "DEFINE_spaceseplist": None,
         "DEFINE_multi_string": None, "DEFINE_multi_integer": TO_INT, "DEFINE_multi_float": TO_FLOAT,
         "DEFINE_multi_enum": None}  # fmt: skip


def _absl(machine: Machine, tail: str, call: Call) -> Fact | None:
    if tail == "run":
        main = call.argument("main", 0)
        return call_value(machine, main, Call("main", (fixed(None),), {}, call.span)) if main is not None else None
    if tail not in _ABSL or not call.args or not isinstance(call.args[0].value, str):
        return None
    name = call.args[0].value
    short = call.kwargs.get("short_name")
    names = (name, short.value) if short is not None and isinstance(short.value, str) else (name,)
    action = "switch" if "bool" in tail else "append" if "multi" in tail else "store"
    opt = Option(name, tuple(f"{dash}{n}" for n in names for dash in ("--", "-")), call.span, call.argument("default", 1),
                 convert=_ABSL[tail], action=action,
                 off_flags=tuple(f"{dash}no{n}" for n in names for dash in ("--", "-")) if "bool" in tail else ())  # fmt: skip
    words, launched = signatures.launched_words(machine)
    value = settle([opt], read_words([opt], words, prefixes=False), launched)[name]
    machine.flags[name] = value
    return fixed(Instance(Symbol("absl.FlagHolder"), call, {"value": value, "default": value}), call.span)


def _parsed_function(machine: Machine, target: Fact, span: Span) -> Fact | None:
    """fastcore's `@call_parse`: the function runs on the command line when the script is started."""
    if not isinstance(target.value, Function):
        return None

    def invoke(call: Call) -> Fact:
        if call.args or call.kwargs:
            return call_value(machine, target, call)
        return signatures.run_signature(machine, target, call.span) or fixed(None)

    name = machine.frame.scope.globals.slots.get("__name__")
    if isinstance(name, Fact) and name.value == "__main__":
        signatures.run_signature(machine, target, span)
        return fixed(Native("call_parse", lambda call: fixed(None)), span)
    return fixed(Native("call_parse", invoke), span)
