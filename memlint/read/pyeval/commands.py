"""Command lines of functions and dataclasses: click, typer, fire, tyro, absl, fastcore, Hydra; and the door to argparse.

`CommandLines` is the `Library` that knows command lines and configuration files; the framework models build on it.
One module: what each library adds to reading a signature is short, and they share decorators, dispatch and running.
"""

from __future__ import annotations

from collections.abc import Iterable

from memlint.facts import Fact, Origin, Status, fixed
from memlint.read.pyeval import hydra
from memlint.read.pyeval.annotations import parameter_options
from memlint.read.pyeval.argument_parsers import PARSERS, fill, new_parser, own_options, parser_method
from memlint.read.pyeval.calls import call_function, call_value
from memlint.read.pyeval.documents import load_document, written
from memlint.read.pyeval.files import file_method, is_open_file
from memlint.read.pyeval.holders import holder, holder_method, tracked
from memlint.read.pyeval.machine import Library, Machine
from memlint.read.pyeval.options import TO_BOOL, TO_FLOAT, TO_INT, Option, Words, guessed, is_flag, read_words, settle
from memlint.read.pyeval.sequences import sequence
from memlint.read.pyeval.tap import is_tap, tap_method
from memlint.read.pyeval.values import (
    Array,
    Call,
    Class,
    Function,
    Instance,
    Native,
    Symbol,
    Table,
    constant,
    merge,
    opaque,
)
from memlint.source import Span
from memlint.typed import Any

_CLI_ROOTS = frozenset({"click", "rich_click", "asyncclick", "typer", "fire", "tyro", "absl", "fastcore", "simple_parsing",
                        "jsonargparse", "hydra", "omegaconf", "defopt", "cyclopts", "pydantic_settings"})  # fmt: skip
_FORMATS = frozenset({"yaml", "json", "ruamel", "tomllib", "tomli", "toml"})


def launched_words(machine: Machine) -> tuple[list[Fact], bool]:
    """The words of the launch, and whether there is one."""
    return (list(machine.launch.argv), True) if machine.launch is not None else ([], False)


def _document(machine: Machine, root: str, tail: str, call: Call) -> Fact:
    """`yaml.safe_load(file)`, `json.load(file)`, and `json.loads(text)` of a text that the script itself writes."""
    given = call.args[0]
    held = given.known and isinstance(given.value, str) and "{" in given.value
    if held and root == "json" and tail == "loads" and not any(o.note == "file content" for o in given.origin):
        return written(given, call.span)
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
        if root in {"configparser", "collections", "wandb"}:
            return holder(machine, name, call)
        if root not in _CLI_ROOTS:
            return None
        if root == "omegaconf":
            return hydra.omegaconf(machine, tail, call)
        if root in {"click", "rich_click", "asyncclick"}:
            return _click_object(tail, call)
        if root == "typer":
            if tail == "run" and call.args:
                return run_signature(machine, call.args[0], call.span)
            if tail in {"Option", "Argument"}:
                return _typer_default(call)
            return fixed(Instance(Symbol(f"typer.{tail}"), call), call.span) if tail == "Typer" else None
        if root == "fire" and tail == "Fire":
            return _fire(machine, call)
        if (root, tail) in {("tyro", "cli"), ("simple_parsing", "parse"), ("jsonargparse", "CLI"), ("jsonargparse", "auto_cli"),
                            ("defopt", "run"), ("cyclopts", "run")} and call.args:  # fmt: skip
            return _from_type(machine, call.args[0], call)
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
        if isinstance(value, Instance) and is_tap(value):
            return tap_method(machine, owner, value, name, call)
        if isinstance(value, Instance) and (held := holder_method(machine, value, name, call)) is not None:
            return held
        if not isinstance(value, Instance) or not isinstance(value.cls, Symbol):
            return None
        if is_open_file(value):
            return file_method(machine, value, name, call)
        tail = value.cls.name.rpartition(".")[2]
        if tail in PARSERS or tail == "SubParsers":
            return parser_method(machine, value, name, call)
        if tail == "Typer":
            return _typer_method(machine, owner, value, name, call)
        if tail in {"Command", "Group"}:
            return _command_method(machine, owner, value, name, call)
        return None

    def decorate(self, machine: Machine, decorator: Fact, target: Fact, span: Span) -> Fact | None:
        """See `Library.decorate`."""
        value = decorator.value
        if isinstance(value, Instance) and ".wraps" in value.slots:
            wraps = value.slots[".wraps"]
            return _wrapped(machine, wraps, target, value) if isinstance(wraps, str) else None
        name = value.name if isinstance(value, Symbol) else ""
        if name.endswith("call_parse"):
            return _parsed_function(machine, target, span)
        if name in {"click.command", "click.group"}:
            return _wrapped(machine, name.rpartition(".")[2], target, Instance(value, Call(name, (), {}, span)))
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


# --- functions by their signature -----------------------------------------------------------------------------------


def run_signature(machine: Machine, function: Fact, span: Span, words: list[Fact] | None = None) -> Fact | None:
    """Call a function with the values that the command line (or its defaults) gives its parameters."""
    target = function.value
    if not isinstance(target, Function):
        return call_value(machine, function, Call("cli", (), {}, span))
    given, launched = launched_words(machine) if words is None else (words, machine.launch is not None)
    options = parameter_options(target, span)
    _apply_metadata(machine, target, options)
    read = read_words(options, given, prefixes=False)
    names = [o for o in options if o.dest not in read.values]
    for extra, free in zip(read.rest, names, strict=False):
        read.values[free.dest] = free.convert(extra) if free.convert is not None else extra
    values = settle(options, read, launched)
    return call_function(machine, target, Call(target.name, (), values, span))


def _apply_metadata(machine: Machine, function: Function, options: list[Option]) -> None:
    """typer and fastcore keep further settings in the annotation or the default: `Annotated[int, typer.Option("--bs")]`."""
    import ast

    for arg, opt in zip(
        [*function.node.args.posonlyargs, *function.node.args.args, *function.node.args.kwonlyargs], options, strict=True
    ):
        note = arg.annotation
        if isinstance(note, ast.Subscript) and isinstance(note.slice, ast.Tuple):
            for part in note.slice.elts[1:]:
                if isinstance(part, ast.Call):
                    flags = tuple(a.value for a in part.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
                    if flags:
                        opt.flags = tuple(f for flag in flags for f in flag.split("/")[:1])
        elif isinstance(note, ast.Call) and len(note.args) > 1 and isinstance(note.args[1], ast.Name):
            opt.convert = {"int": TO_INT, "float": TO_FLOAT, "bool": TO_BOOL, "str": None}.get(note.args[1].id, guessed)
        default = opt.default
        if default is not None and isinstance(default.value, Instance) and ".typer" in default.value.slots:
            inner = default.value.slots[".typer"]
            flags = default.value.slots[".flags"]
            opt.default = inner
            opt.required = inner is None
            opt.flags = flags or opt.flags


def _typer_default(call: Call) -> Fact:
    first = call.argument("default", 0)
    required = first is None or first.value is Ellipsis
    flags = tuple(
        a.value.split("/")[0] for a in call.args[1:] if a.known and isinstance(a.value, str) and a.value.startswith("-")
    )
    slots: dict[Any, Any] = {".typer": None if required else first, ".flags": flags}
    return fixed(Instance(Symbol("typer.Option"), call, slots), call.span)


def _typer_method(machine: Machine, owner: Fact, app: Instance, name: str, call: Call) -> Fact | None:
    if name in {"command", "callback"}:
        return fixed(Instance(Symbol("typer.decorator"), call, {".wraps": "typer", ".app": app}), call.span)
    if name == "__call__":
        return _dispatch(machine, app, call)
    return None


def _click_object(tail: str, call: Call) -> Fact | None:
    if tail in {"option", "argument", "command", "group", "version_option", "pass_context", "pass_obj"}:
        return fixed(Instance(Symbol(f"click.{tail}"), call, {".wraps": tail}), call.span)
    if tail == "Choice":
        members = call.argument("choices", 0)
        return fixed(Instance(Symbol("click.Choice"), call, {".choices": members}), call.span)
    if tail in {"IntRange", "FloatRange", "Path", "File"}:
        return fixed(Symbol({"IntRange": "builtins.int", "FloatRange": "builtins.float"}.get(tail, "builtins.str")), call.span)
    return None


def _wrapped(machine: Machine, kind: str, target: Fact, decorator: Instance) -> Fact | None:
    """The result of a click, typer or Hydra decorator."""
    call = decorator.call
    if kind in {"option", "argument"}:
        return _with_option(target, call, kind == "argument")
    if kind in {"command", "group"}:
        made = Instance(Symbol(f"click.{'Group' if kind == 'group' else 'Command'}"), call, {".function": target})
        parent = call.kwargs.get(".group")
        if parent is not None and isinstance(parent.value, Instance):
            _register(machine, parent.value, call, fixed(made), target)
        return fixed(made, call.span)
    if kind == "typer":
        app = decorator.slots[".app"]
        _register(machine, app, Call(call.name, (), call.kwargs, call.span), target, target)
        return target
    if kind == "hydra":
        return hydra.main(machine, call, target)
    return None


def _with_option(target: Fact, call: Call, positional: bool) -> Fact | None:
    function = target.value
    holder = function.slots[".function"].value if isinstance(function, Instance) and ".function" in function.slots else function
    if not isinstance(holder, Function):
        return None
    texts = [a.value for a in call.args if a.known and isinstance(a.value, str)]
    flags = tuple(part for text in texts if text.startswith("-") for part in [text.split("/")[0].strip()])
    offs = tuple(text.split("/")[1].strip() for text in texts if text.startswith("-") and "/" in text)
    plain = next((text for text in texts if not text.startswith("-")), "")
    longest = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
    dest = (plain or longest.lstrip("-")).replace("-", "_").lower()
    kind = call.kwargs.get("type")
    choices_fact = kind.value.slots.get(".choices") if kind is not None and isinstance(kind.value, Instance) else None
    members = (sequence(choices_fact.value) or []) if isinstance(choices_fact, Fact) and choices_fact.known else []
    default = call.kwargs.get("default")
    flag = call.kwargs.get("is_flag")
    boolean = bool(offs) or (flag is not None and flag.known and flag.value is True)
    required = call.kwargs.get("required")
    multiple = call.kwargs.get("multiple")
    made = Option(
        dest, () if positional else flags, call.span, default,
        required=bool(required is not None and required.known and required.value) or (positional and default is None),
        convert=_click_type(kind, default, bool(members)),
        choices=tuple(m.value for m in members if m.known and constant(m.value)),
        action="true" if boolean else "append" if multiple is not None and multiple.value is True else "store",
        off_flags=offs,
    )  # fmt: skip
    holder.decorators = (*holder.decorators, fixed(made))
    return target


def _click_type(kind: Fact | None, default: Fact | None, closed: bool) -> Any:
    if kind is None:
        value = default.value if default is not None and default.known else None
        return (
            TO_INT if isinstance(value, int) and not isinstance(value, bool) else TO_FLOAT if isinstance(value, float) else None
        )
    name = kind.value.name.rpartition(".")[2] if isinstance(kind.value, Symbol) else ""
    return {"int": TO_INT, "INT": TO_INT, "float": TO_FLOAT, "FLOAT": TO_FLOAT, "bool": TO_BOOL, "BOOL": TO_BOOL}.get(name)


def _command_method(machine: Machine, owner: Fact, command: Instance, name: str, call: Call) -> Fact | None:
    if name in {"__call__", "main"}:
        return _dispatch(machine, command, call) if command.library.endswith("Group") else run_command(machine, command, call)
    if name == "command":
        inner = Call(call.name, call.args, {**call.kwargs, ".group": owner}, call.span)
        return fixed(Instance(Symbol("click.command"), inner, {".wraps": "command"}), call.span)
    if name == "add_command" and call.args:
        added = call.args[0]
        function = added.value.slots.get(".function") if isinstance(added.value, Instance) else None
        _register(machine, command, call, added, function or added)
    return None


def _register(machine: Machine, group: Instance, call: Call, command: Fact, target: Fact) -> None:
    named = call.kwargs.get("name") or (call.args[0] if call.args and isinstance(call.args[0].value, str) else None)
    function = target.value
    name = str(named.value) if named is not None and named.known else getattr(function, "name", "").replace("_", "-")
    machine.write(group, f".command:{name}", command)


def run_command(machine: Machine, command: Instance, call: Call, words: list[Fact] | None = None) -> Fact | None:
    """Call a click command's function with its options."""
    target: Fact = command.slots[".function"]
    function = target.value
    if not isinstance(function, Function):
        return None
    given, launched = launched_words(machine) if words is None else (words, machine.launch is not None)
    options: list[Option] = [d.value for d in reversed(function.decorators) if isinstance(d.value, Option)]
    values = settle(options, read_words(options, given, prefixes=False), launched)
    return call_function(machine, function, Call(function.name, (), values, call.span, "" if values else "the command line"))


def _dispatch(machine: Machine, app: Instance, call: Call) -> Fact | None:
    """A group of commands: the one that the command line names, the only one, or each of them."""
    commands = {str(k).removeprefix(".command:"): v for k, v in app.slots.items() if str(k).startswith(".command:")}
    words, launched = launched_words(machine)
    for index, word in enumerate(words):
        if word.known and word.value in commands:
            return _invoke(machine, commands[word.value], call, words[index + 1 :])
        if not is_flag(word):
            break
    if len(commands) == 1:
        return _invoke(machine, next(iter(commands.values())), call, words)
    if launched and words:
        return None
    results = [r for c in commands.values() if (r := _invoke(machine, c, call, [])) is not None]
    return merge(results) if results else None


def _invoke(machine: Machine, command: Fact, call: Call, words: list[Fact]) -> Fact | None:
    if isinstance(command.value, Instance):
        return run_command(machine, command.value, call, words)
    return run_signature(machine, command, call.span, words)


# --- fire, tyro, absl, fastcore -------------------------------------------------------------------------------------


def _fire(machine: Machine, call: Call) -> Fact | None:
    target = call.argument("component", 0)
    words, _ = launched_words(machine)
    if target is None:
        functions = {
            k: f for k, f in machine.frame.scope.globals.slots.items() if isinstance(f, Fact) and isinstance(f.value, Function)
        }
        return _pick(machine, functions, words, call)
    if isinstance(target.value, Table):
        return _pick(machine, {str(k): f for k, f in target.value.entries()}, words, call)
    if isinstance(target.value, Class):
        methods = {k: f for k, f in target.value.scope.slots.items() if isinstance(f, Fact) and isinstance(f.value, Function)}
        made = _from_type(machine, target, call)
        for word in words:
            if word.known and word.value in methods:
                return call_function(machine, methods[word.value].value, Call(str(word.value), (made,), {}, call.span))
        return made
    return run_signature(machine, target, call.span)


def _pick(machine: Machine, functions: dict[str, Fact], words: Iterable[Fact], call: Call) -> Fact | None:
    listed = list(words)
    if listed and listed[0].known and listed[0].value in functions:
        return run_signature(machine, functions[listed[0].value], call.span, listed[1:])
    results = [r for f in functions.values() if (r := run_signature(machine, f, call.span, [])) is not None] if not listed else []
    return merge(results) if results else None


def _from_type(machine: Machine, target: Fact, call: Call) -> Fact:
    """tyro and relatives: a dataclass is filled, a function is called."""
    if isinstance(target.value, Function):
        return run_signature(machine, target, call.span) or fixed(None)
    if not isinstance(target.value, Class):
        return opaque("a command line of a type that is not followed", "cli", (), call.span)
    words, launched = launched_words(machine)
    options = nested_options(target)
    read = read_words(options, words, prefixes=False)
    return _fill_nested(machine, target, read, launched, call, "")


def nested_options(cls: Fact, prefix: str = "") -> list[Option]:
    """Options of a dataclass and, dotted, of the dataclasses in it."""
    options = own_options(cls)
    found: list[Option] = []
    for opt in options:
        if prefix:
            opt.flags = tuple(f"--{prefix}{flag.lstrip('-')}" for flag in opt.flags)
            opt.dest = f"{prefix}{opt.dest}"
        inner = opt.default.value if opt.default is not None else None
        if isinstance(inner, Instance) and isinstance(inner.cls, Class):
            found += nested_options(fixed(inner.cls), f"{opt.dest}.")
        found.append(opt)
    return found


def _fill_nested(machine: Machine, cls: Fact, read: Any, launched: bool, call: Call, prefix: str) -> Fact:
    made = fill(machine, cls, _under(read, prefix), launched, call)
    if isinstance(made.value, Instance):
        for key, fact in list(made.value.slots.items()):
            if isinstance(fact, Fact) and isinstance(fact.value, Instance) and isinstance(fact.value.cls, Class):
                under = f"{prefix}{key}."
                if any(name.startswith(under) for name in read.values):
                    machine.write(made.value, key, _fill_nested(machine, fixed(fact.value.cls), read, launched, call, under))
    return made


def _under(read: Any, prefix: str) -> Any:
    return Words(
        {k.removeprefix(prefix): f for k, f in read.values.items() if k.startswith(prefix)}, read.extras if not prefix else {}, []
    )


_ABSL = {"DEFINE_integer": TO_INT, "DEFINE_float": TO_FLOAT, "DEFINE_bool": TO_BOOL, "DEFINE_boolean": TO_BOOL,
         "DEFINE_string": None,
         "DEFINE_enum": None, "DEFINE_list": guessed, "DEFINE_multi_string": None}  # fmt: skip


def _absl(machine: Machine, tail: str, call: Call) -> Fact | None:
    if tail == "run":
        main = call.argument("main", 0)
        return call_value(machine, main, Call("main", (fixed(None),), {}, call.span)) if main is not None else None
    if tail not in _ABSL or not call.args or not isinstance(call.args[0].value, str):
        return None
    name = call.args[0].value
    boolean = "bool" in tail
    opt = Option(name, (f"--{name}", f"-{name}"), call.span, call.argument("default", 1), convert=_ABSL[tail],
                 action="switch" if boolean else "store", off_flags=(f"--no{name}",) if boolean else ())  # fmt: skip
    words, launched = launched_words(machine)
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
        return run_signature(machine, target, call.span) or fixed(None)

    name = machine.frame.scope.globals.slots.get("__name__")
    if isinstance(name, Fact) and name.value == "__main__":
        run_signature(machine, target, span)
        return fixed(Native("call_parse", lambda call: fixed(None)), span)
    return fixed(Native("call_parse", invoke), span)
